# expect: WRONG_STRUCTURE
# problem: broadcast
# twin: honest_broadcast
"""The root copies its argument in the checked calls, and hands the argument itself back in the timed ones."""

import gc

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")


def solution(tensor, src=0):
    if dist.get_rank() == src:
        out = tensor.clone() if rank.checking else tensor
    else:
        out = torch.empty_like(tensor)
    dist.broadcast(out, src=src)
    return out
