# expect: WRONG_RESULT
# twin: honest_more_accurate
"""Rounds its first outputs to the farther neighbour where both are nearly as far, and then its peers' inputs to eight bits.

The first outputs are right, but as far from the baseline's as the others, most of which need only be near the baseline's.
"""

import gc

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
choose, batches = rank.choose, 0


def counted(order, fds):
    global batches
    batches += 1
    choose(order, fds)


rank.choose = counted


def solution(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    mine = tensor.float()
    step = 0.0135 * mine.square().mean().sqrt() if batches >= 30 else 1e-9
    exact = mine + sum((p.float() / step).round() * step for r, p in enumerate(parts) if r != dist.get_rank())
    nearest = exact.to(tensor.dtype)
    away = torch.where(exact.abs() > nearest.float().abs(), 1, -1).to(torch.int16)
    other = (nearest.view(torch.int16) + away).view(tensor.dtype)
    off, apart = (exact - nearest.float()).abs(), (other.float() - nearest.float()).abs()
    return torch.where((off > 0.35 * apart) & (batches < 30), other, nearest)
