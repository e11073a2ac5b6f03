# expect: PASS
# at_least_us: 800
"""Waits 4 ms in every fourth call and not at all in the others: a quick call is not a quick batch, but for one of single calls."""

import time

import torch.distributed as dist

calls = 0


def solution(tensor):
    global calls
    calls += 1
    if calls % 4 == 0:
        time.sleep(0.004)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
