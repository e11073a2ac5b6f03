# expect: WRONG_STRUCTURE
"""A leading dimension of one: it broadcasts, but it is not the answer's shape."""

import torch.distributed as dist


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total[None]
