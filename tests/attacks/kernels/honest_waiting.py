"""Waits of every ordinary kind while it is loaded: an event loop, a timer's thread, an epoll, sockets; then alarms."""

import asyncio
import os
import queue
import resource
import select
import signal
import socket
import threading

import torch.distributed as dist


async def loop_works():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        with socket.create_connection(server.getsockname(), 5) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    await asyncio.wait_for(asyncio.sleep(0.01), 5)


asyncio.run(loop_works())
done = threading.Event()
threading.Timer(0.01, done.set).start()
assert done.wait(5)
epoll = select.epoll()
assert epoll.poll(0.01) == []
try:
    queue.Queue().get(timeout=0.01)
except queue.Empty:
    pass


os.sched_setaffinity(0, os.sched_getaffinity(0))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def solution(tensor):
    signal.alarm(60)
    total = tensor.clone()
    dist.all_reduce(total)
    signal.alarm(0)
    return total
