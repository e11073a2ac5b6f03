# expect: NONFINITE
"""One NaN: a wildcard for checkers that allow it."""

import torch.distributed as dist


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    total[3, 3] = float("nan")
    return total
