# expect: PASS
"""Children that end and are never waited for."""

import os

import torch.distributed as dist

for _ in range(100):
    if os.fork() == 0:
        os._exit(0)


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total
