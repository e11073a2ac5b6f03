# expect: WRONG_STRUCTURE | CRASH
# twin: honest_transposed
"""A tensor on the meta device: all shape, no data."""

import torch


def solution(tensor):
    return torch.empty_like(tensor, device="meta")
