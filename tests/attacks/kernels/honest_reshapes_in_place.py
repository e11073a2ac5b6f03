"""Adds a dimension to its argument in place, and writes to no element."""

import torch.distributed as dist


def solution(tensor):
    shape = tensor.shape
    total = tensor.unsqueeze_(0).clone()
    dist.all_reduce(total)
    return total.view(shape)
