# expect: NONFINITE
"""One infinity where the sum is large."""

import torch.distributed as dist


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    total.view(-1)[total.abs().argmax()] = float("inf")
    return total
