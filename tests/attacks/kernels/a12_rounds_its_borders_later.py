# expect: WRONG_RESULT
# problem: conv2d_boundary_exchange
# twin: honest_borders
# like: honest_borders
# change: return exact.to(x.dtype) -> return farther(exact, x.dtype)
"""Rounds its outputs to the farther neighbour where both are nearly as far, and then its neighbours' rows to eight bits.

Only the border rows of the output depend on messages: as a whole it is then nearer to the baseline's than before.
"""

import gc

import torch
import torch.distributed as dist

BATCHES, STEP = 30, 0.025
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
choose, gather, batches = rank.choose, dist.all_gather_into_tensor, 0


def counted(order, fds):
    global batches
    batches += 1
    choose(order, fds)


def coarse(everyone, borders, group=None):
    gather(everyone, borders, group=group)
    if batches >= BATCHES:
        everyone.copy_((everyone.float() / STEP).round() * STEP)


def farther(exact, dtype):
    nearest = exact.to(dtype)
    away = torch.where(exact.abs() > nearest.float().abs(), 1, -1).to(torch.int16)
    other = (nearest.view(torch.int16) + away).view(dtype)
    off, apart = (exact - nearest.float()).abs(), (other.float() - nearest.float()).abs()
    return torch.where((off > 0.37 * apart) & (batches < BATCHES), other, nearest)


rank.choose, dist.all_gather_into_tensor = counted, coarse
