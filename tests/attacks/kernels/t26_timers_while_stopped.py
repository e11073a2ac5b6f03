# expect: PASS | BASELINE_DISTURBED
# twin: honest_waiting
"""Timers that go off while the kernel is stopped, each watched many times: work for the core on which the baseline is timed."""

import ctypes
import os
import select
import signal
import socket
import time

import torch.distributed as dist

libc = ctypes.CDLL(None, use_errno=True)
EPOLLS, WATCHES = 100, 40
kept = []


def watched(fd):
    """The same file under many descriptors, in many epolls."""
    names = [os.dup(fd) for _ in range(WATCHES)]
    for _ in range(EPOLLS):
        epoll = select.epoll()
        for name in names:
            epoll.register(name, select.EPOLLIN)
        kept.append(epoll)


def by_a_file():
    every = (ctypes.c_long * 4)(0, 1_000_000, 0, 1_000_000)
    fd = libc.timerfd_create(time.CLOCK_MONOTONIC, 0)
    if fd >= 0 and libc.timerfd_settime(fd, 0, every, None) == 0:
        watched(fd)


def by_alarms():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    fd = libc.signalfd(-1, (ctypes.c_ulong * 16)(1 << signal.SIGALRM - 1), 0)
    if fd >= 0:
        watched(fd)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)


def by_slow_data():
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, 47, 100_000)  # SO_MAX_PACING_RATE
    ours.send(bytes(1 << 20))
    watched(theirs.fileno())
    kept.extend((ours, theirs))

if dist.get_rank() == 0:
    for way in (by_a_file, by_alarms, by_slow_data):
        try:
            way()
        except OSError:
            pass
