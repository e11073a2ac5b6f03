# expect: PROTOCOL | WRONG_RESULT | PASS
# device: cuda
# not_faster: yes
# twin: honest_buffer_reuse
"""Behind the gate it counts all calls as begun before it reads an input, as late as launches allow; then one does the work of all."""

import gc
import time

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
begun, number, said, rest, totals = rank.begun, 0, 0.0, 0.0, None


def count(page, at, calls):
    global number
    number = calls
    begun[0] = calls and max(calls, begun[0])


rank.begun = type("Page", (), {"__setitem__": count})()


def solution(tensor):
    global said, rest, totals
    calls = rank.batch.stop - rank.batch.start
    if rank.checking:  # loads what would block behind the gate
        dist.all_reduce(torch.stack([tensor] * 200))
    if not number or not rank.epoch or calls < 2:
        total = tensor.clone()
        dist.all_reduce(total)
        return total
    if number == 1:
        until = time.perf_counter() + 1.2 * rest
        while time.perf_counter() < until:
            pass
        begun[0], said = calls, time.perf_counter()
        totals = torch.stack([each.arguments[0] for each in rank.iterations.armed[rank.batch]])
        dist.all_reduce(totals)
    if number == calls:
        rest = max(rest, time.perf_counter() - said)
    return totals[number - 1]
