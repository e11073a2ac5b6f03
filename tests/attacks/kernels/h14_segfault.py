# expect: CRASH
"""Reads address 0 on one rank."""

import ctypes

import torch.distributed as dist


def solution(tensor):
    if dist.get_rank() == 1:
        ctypes.string_at(0)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
