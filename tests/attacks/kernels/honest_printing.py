"""Prints a line a call."""

import torch.distributed as dist


def solution(tensor):
    print("summing", tuple(tensor.shape))
    total = tensor.clone()
    dist.all_reduce(total)
    return total
