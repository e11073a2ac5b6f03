# expect: LATE_OUTPUT | WRONG_RESULT
# twin: honest_thread_pool
"""Honest while checked; when timed, a thread fills the output slots behind the harness's back."""

import gc
import threading
import time

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
calls = 0


def later(slot, answer):
    time.sleep(0.002)
    structure, leaves = rank.iterations.last
    slot.pack(structure, [(leaves[0][0], answer)])


def solution(tensor):
    global calls
    calls += 1
    total = tensor.clone()
    dist.all_reduce(total)
    if calls <= 3:
        return total
    slot = next((slot for (given,), _, _, slot in rank.iterations.armed if given.data_ptr() == tensor.data_ptr()), None)
    if slot is None:  # a rehearsal, not a batch
        return total
    threading.Thread(target=later, args=(slot, total)).start()
    return torch.zeros_like(tensor)
