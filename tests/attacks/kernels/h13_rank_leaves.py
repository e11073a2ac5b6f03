# expect: CRASH
"""One rank leaves in the middle of a collective."""

import os

import torch.distributed as dist


def solution(tensor):
    if dist.get_rank() == 1:
        os._exit(3)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
