# expect: WRONG_RESULT | LATE_OUTPUT
# twin: honest_buffer_reuse
"""Takes its inputs in timed calls, and does their work in the untimed calls before the next batch."""

import gc

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
owed = []


def solution(tensor):
    timed = not rank.checking and any(
        given.data_ptr() == tensor.data_ptr() for (given,), _, _, _ in rank.iterations.armed
    )
    if timed:
        result = torch.zeros_like(tensor)
        owed.append((tensor, result))
        return result
    while owed:
        source, result = owed.pop(0)
        result.copy_(source)
        dist.all_reduce(result)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
