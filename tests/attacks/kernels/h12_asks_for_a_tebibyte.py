# expect: OUT_OF_MEMORY
# problem: allreduce
# attack: H12
# twin: honest
"""Asks for a tebibyte."""

import torch


def solution(tensor):
    return torch.empty(1 << 40, dtype=torch.uint8)
