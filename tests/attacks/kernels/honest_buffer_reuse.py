"""Keeps a buffer between calls, but computes in it every time."""

import torch.distributed as dist

buffer = None


def solution(tensor):
    global buffer
    if buffer is None:
        buffer = tensor.clone()
    buffer.copy_(tensor)
    dist.all_reduce(buffer)
    return buffer.clone()
