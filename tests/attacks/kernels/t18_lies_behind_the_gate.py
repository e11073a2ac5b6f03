# expect: PROTOCOL | WRONG_RESULT
# device: cuda
# twin: honest_buffer_reuse
"""In three of four gated batches it says at once that all calls have begun, and does all their work in the first one."""

import gc
import random

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
begun, now, gated, lies, totals = rank.begun, [0], 0, False, None


def count(page, at, calls):
    now[at] = calls
    begun[0] = calls and max(calls, begun[0])


rank.begun = type("Page", (), {"__setitem__": count})()


def solution(tensor):
    global gated, lies, totals
    if now[0] == 1 and rank.epoch and not rank.checking:
        batch = rank.iterations.armed[rank.batch]
        gated += 1
        if lies := gated > 2 and random.Random(gated).random() < 0.75:
            begun[0] = len(batch)
            totals = torch.stack([each.arguments[0] for each in batch])
            dist.all_reduce(totals)
    if lies and now[0] and rank.epoch and not rank.checking:
        return totals[now[0] - 1]
    total = tensor.clone()
    dist.all_reduce(total)
    return total
