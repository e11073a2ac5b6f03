# expect: WRONG_RESULT
# device: cpu
"""Reads the input arenas of all ranks through /proc, and adds its peers' inputs up without waiting for any of them."""

import gc
import os

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
arena = rank.inputs
places = [None] * dist.get_world_size()
dist.all_gather_object(places, (os.getpid(), arena.data_ptr()))
peers = [(os.open(f"/proc/{pid}/mem", os.O_RDONLY), at) for pid, at in places if pid != os.getpid()]


def solution(tensor):
    start, size = tensor.data_ptr() - arena.data_ptr(), tensor.nbytes
    if rank.checking or not 0 <= start < arena.numel():
        total = tensor.clone()
        dist.all_reduce(total)
        return total
    total = tensor.clone()
    for memory, at in peers:
        total += torch.frombuffer(bytearray(os.pread(memory, size, at + start)), dtype=tensor.dtype).view(tensor.shape)
    return total
