# expect: MUTATED_INPUT
# twin: honest_reshapes_in_place
"""Sums in place, then gives its argument other memory that holds the old values."""

import torch.distributed as dist


def solution(tensor):
    before = tensor.clone()
    dist.all_reduce(tensor)
    total = tensor.clone()
    tensor.data = before
    return total
