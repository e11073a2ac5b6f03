# expect: PASS | BASELINE_DISTURBED
"""Has itself continued while it is stopped: by a timer, by data that arrives, by a process that ends late, by an orphaned group."""

import ctypes
import fcntl
import os
import platform
import signal
import socket
import time

import torch.distributed as dist

libc = ctypes.CDLL(None, use_errno=True)
TIMER_CREATE, TIMER_SETTIME, CLONE = {"x86_64": (222, 223, 56), "aarch64": (107, 110, 220)}[platform.machine()]
PR_SET_PDEATHSIG, F_SETSIG = 1, 10


def burn():
    while True:
        time.sleep(0.004)
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until:
            pass


def by_a_timer():
    event, number = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0), ctypes.c_int()
    every = (ctypes.c_long * 4)(0, 1_000_000, 0, 1_000_000)
    if libc.syscall(TIMER_CREATE, time.CLOCK_MONOTONIC, event, ctypes.byref(number)) == 0:
        libc.syscall(TIMER_SETTIME, number, 0, every, None)


def by_data():
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(ours, F_SETSIG, signal.SIGCONT)
    fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC)
    return theirs


def by_an_end():
    """The parent frees much memory when it ends, which no stop interrupts."""
    if os.fork() == 0:
        held = bytearray(128 << 20)
        if os.fork() == 0:
            if libc.prctl(PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0) == 0:
                burn()
        os._exit(len(held) & 1)


def by_a_group():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if os.fork() == 0:
        os.setpgid(0, 0)
        burn()

if dist.get_rank() == 0 and os.fork() == 0:
    for way in (by_a_timer, by_data, by_an_end, by_a_group):
        try:
            way()
        except OSError:
            pass
    burn()
