# expect: PASS
# twin: honest_buffer_reuse
"""Slow while the referee chooses how many calls to time."""

import time

import torch.distributed as dist

calls = 0


def solution(tensor):
    global calls
    calls += 1
    time.sleep(0.02 if calls < 8 else 0)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
