# expect: MUTATED_INPUT
"""Sums in place: right values, but the argument is gone."""

import torch.distributed as dist


def solution(tensor):
    dist.all_reduce(tensor)
    return tensor.clone()
