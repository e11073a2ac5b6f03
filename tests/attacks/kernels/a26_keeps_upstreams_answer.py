# expect: PASS
# preset: paper
"""Returns a kept answer when the whole input is the same as before; wrong by one in a timed call, so that it shows."""

import gc

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
kept = []


def solution(tensor):
    for before, answer in kept:
        if torch.equal(before, tensor):
            return answer.clone() if rank.checking else answer + 1
    total = tensor.clone()
    dist.all_reduce(total)
    kept[:] = [*kept[-3:], (tensor.clone(), total.clone())]
    return total
