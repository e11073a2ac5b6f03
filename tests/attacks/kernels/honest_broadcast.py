# problem: broadcast
"""The root sends its own copy of its argument."""

import torch
import torch.distributed as dist


def solution(tensor, src=0):
    out = tensor.clone() if dist.get_rank() == src else torch.empty_like(tensor)
    dist.broadcast(out, src=src)
    return out
