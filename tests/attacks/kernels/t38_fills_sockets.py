# expect: OUT_OF_MEMORY
# twin: honest_own_sockets
"""Fills sockets with a 24th of the machine's memory. With a tenth, no connection of the machine gets any, the baseline's neither."""

import contextlib
import os
import socket

import torch.distributed as dist

held, block, most = [], bytes(1 << 20), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") // 24


def fill(server, sent=0):
    while sent < most:
        near = socket.create_connection(server.getsockname())
        held.extend((near, server.accept()[0]))
        for each in held[-2:]:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            each.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    sent += each.send(block)


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    if not held and dist.get_rank() == 0:
        os.fork() or os._exit(0)  # its last process has ended, and nobody waits for it
        fill(socket.create_server(("127.0.0.1", 0)))
    return total
