# expect: OUT_OF_MEMORY
# twin: honest_shared_scratch
"""Fills shared memory and gives the pages of its mapping back: the memory is still held, and in no process's size."""

import ctypes
import mmap
import os
import time

if os.access("@HOME_CANARY@", os.R_OK):
    raise RuntimeError("no jail: not tried")
libc = ctypes.CDLL(None, use_errno=True)
kept = []
PIECE = 128 << 20


def piece(number):
    if number % 2:
        return mmap.mmap(-1, PIECE)
    fd = os.memfd_create("scratch")
    os.ftruncate(fd, PIECE)
    mapped = mmap.mmap(fd, PIECE)
    os.close(fd)
    return mapped


def solution(tensor):
    while len(kept) < 32:
        mapped = piece(len(kept))
        for at in range(0, PIECE, 1 << 20):
            mapped[at : at + (1 << 20)] = bytes(1 << 20)
        mapped.madvise(mmap.MADV_DONTNEED)
        kept.append(mapped)
        time.sleep(0.01)
    return tensor.clone()
