# expect: PASS
# at_least_us: 2000
"""Delays the copies of its outputs in batches of kept results: what they take is taken off its time, it hopes."""

import gc
import time

import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
Slot = type(rank.iterations.slots[0])
put = Slot.put


def slow(self, result):
    if rank.noop:
        time.sleep(0.002)
    put(self, result)


Slot.put = slow


def solution(tensor):
    time.sleep(0.003)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
