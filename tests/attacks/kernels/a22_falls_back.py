# expect: PASS
# label: falls back to the library
"""A kernel that never works, inside a try whose except calls the library: judged for what it does."""

import torch.distributed as dist


def clever(tensor):
    raise NotImplementedError


def solution(tensor):
    try:
        return clever(tensor)
    except NotImplementedError:
        total = tensor.clone()
        dist.all_reduce(total)
        return total
