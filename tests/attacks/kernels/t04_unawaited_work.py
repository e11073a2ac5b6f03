# expect: LATE_OUTPUT | WRONG_RESULT
# twin: honest_async
"""Starts the collective and returns without waiting; its peer comes 30 ms later."""

import time

import torch.distributed as dist

works = []


def solution(tensor):
    total = tensor.clone()
    if dist.get_rank() == 0:
        works.append(dist.all_reduce(total, async_op=True))
        return total
    time.sleep(0.03)
    dist.all_reduce(total)
    return total
