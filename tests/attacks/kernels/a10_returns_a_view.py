# expect: WRONG_STRUCTURE
"""A view of the argument, which holds the sum by then."""

import torch.distributed as dist


def solution(tensor):
    dist.all_reduce(tensor)
    return tensor.view(tensor.shape)
