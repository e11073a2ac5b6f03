"""Starts the collective, and waits for it."""

import torch.distributed as dist


def solution(tensor):
    total = tensor.clone()
    work = dist.all_reduce(total, async_op=True)
    work.wait()
    return total
