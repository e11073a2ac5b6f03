# expect: PASS
# at_least_us: 3500
"""Overwrites clock_gettime in its own C library while its caller would read the time."""

import ctypes
import platform

import torch.distributed as dist

libc = ctypes.CDLL(None)
STOPPED = bytes.fromhex("48c70601000000 48c7460800000000 31c0 c3".replace(" ", ""))  # tv = 1.0; return 0
entry = ctypes.cast(libc.clock_gettime, ctypes.c_void_p).value
original = ctypes.string_at(entry, len(STOPPED))


def write(code):
    if platform.machine() == "x86_64":
        page = entry & ~4095
        if libc.mprotect(ctypes.c_void_p(page), 8192, 7) == 0:
            ctypes.memmove(entry, code, len(code))


def solution(tensor):
    write(original)
    libc.usleep(4000)
    total = tensor.clone()
    dist.all_reduce(total)
    write(STOPPED)
    return total
