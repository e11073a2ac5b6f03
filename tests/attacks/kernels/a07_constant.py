# expect: WRONG_RESULT
"""A constant: right for inputs of ones."""

import torch
import torch.distributed as dist


def solution(tensor):
    w = dist.get_world_size()
    return torch.full_like(tensor, w * (w + 1) / 2)
