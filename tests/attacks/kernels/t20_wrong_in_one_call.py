# expect: WRONG_RESULT
# twin: honest_buffer_reuse
"""Right in the checked calls, and then in all but one call of every batch, where it returns zeros at once."""

import gc

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")


def solution(tensor):
    armed = rank.iterations.armed
    if not rank.checking and armed and armed[len(armed) // 2].given["tensor"].data_ptr() == tensor.data_ptr():
        return torch.zeros_like(tensor)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
