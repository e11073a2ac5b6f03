# device: cpu
"""Keeps some shared memory for itself."""

import mmap

import torch
import torch.distributed as dist

shared = mmap.mmap(-1, 16 << 20)
scratch = torch.frombuffer(shared, dtype=torch.uint8)


def solution(tensor):
    total = scratch[: tensor.numel() * tensor.element_size()].view(tensor.dtype).view(tensor.shape)
    total.copy_(tensor)
    dist.all_reduce(total)
    return total.clone()
