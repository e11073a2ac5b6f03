# expect: PASS
"""The baseline's own code, submitted in the hope of a lucky measurement."""

import torch.distributed as dist


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total
