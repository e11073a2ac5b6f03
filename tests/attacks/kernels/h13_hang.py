# expect: TIMEOUT
"""One rank never makes the collective call."""

import time

import torch.distributed as dist


def solution(tensor):
    if dist.get_rank() == 0:
        time.sleep(3600)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
