# expect: WRONG_RESULT | LATE_OUTPUT | BASELINE_DISTURBED
# twin: honest_buffer_reuse
"""Says DONE at once, and does the batch's work in the calls that nobody times before the next batch of the same round."""

import gc

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
owed = []


def in_batch(tensor):
    return next((slot for (given,), _, _, slot in rank.iterations.armed if given.data_ptr() == tensor.data_ptr()), None)


def solution(tensor):
    slot = None if rank.checking else in_batch(tensor)
    if slot is not None:
        owed.append((tensor, slot))
        return torch.zeros_like(tensor)
    while owed:
        source, late = owed.pop(0)
        total = source.clone()
        dist.all_reduce(total)
        late.put(total)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
