# expect: PASS
# at_least_us: 3500
"""Overwrites clock_gettime in its own C library: it stands still for the thread that calls the kernel, between its calls."""

import ctypes
import platform

import torch.distributed as dist

libc = ctypes.CDLL(None)
libc.pthread_self.restype = ctypes.c_uint64
stopped = ctypes.c_uint8(0)
entry = ctypes.cast(libc.clock_gettime, ctypes.c_void_p).value
thread, flag = (number.to_bytes(8, "little").hex() for number in (libc.pthread_self(), ctypes.addressof(stopped)))
# If this is the thread (fs:0) and `stopped`: tv = 1.0; return 0. Else the system call, for NCCL's threads wait by this clock.
STOPPED = bytes.fromhex(
    f"64488b042500000000 49b8{thread} 4c39c0 7522 49b8{flag} 41803800 7412"
    "48c70601000000 48c7460800000000 31c0 c3 b8e4000000 0f05 c3"
)
if platform.machine() == "x86_64" and libc.mprotect(ctypes.c_void_p(entry & ~4095), 8192, 7) == 0:
    ctypes.memmove(entry, STOPPED, len(STOPPED))


def solution(tensor):
    stopped.value = 0
    libc.usleep(4000)
    total = tensor.clone()
    dist.all_reduce(total)
    stopped.value = 1
    return total
