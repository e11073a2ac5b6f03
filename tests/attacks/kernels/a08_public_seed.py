# expect: WRONG_RESULT
"""Draws the other ranks' inputs anew from the generator's formula and a guessed seed, and adds them up alone."""

import torch
import torch.distributed as dist

from sandbox.rank.problem_code import seeded


def solution(tensor):
    total = torch.zeros_like(tensor)
    for rank in range(dist.get_world_size()):
        generator = seeded(42 * 1_000_003 + rank * 7919 + 17, torch.device("cpu"))
        total += torch.randn(tensor.shape, generator=generator).to(tensor)
    return total
