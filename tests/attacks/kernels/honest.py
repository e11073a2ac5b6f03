"""A copy, then one collective: what everybody would write first."""

import torch.distributed as dist


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total
