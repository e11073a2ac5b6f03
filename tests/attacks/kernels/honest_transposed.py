"""Sums the transpose, and returns the result contiguous."""

import torch.distributed as dist


def solution(tensor):
    total = tensor.t().contiguous()
    dist.all_reduce(total)
    return total.t().contiguous()
