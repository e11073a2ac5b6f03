# expect: CRASH | DEVICE_ERROR
"""Leaves its arguments alone while they are private copies, and sums in place later: they are mapped read-only."""

import torch.distributed as dist

calls = 0


def solution(tensor):
    global calls
    calls += 1
    if calls > 3:
        tensor.zero_()
    total = tensor.clone()
    dist.all_reduce(total)
    return total
