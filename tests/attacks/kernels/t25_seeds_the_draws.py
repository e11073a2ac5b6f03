# expect: WRONG_RESULT | NONFINITE | LATE_OUTPUT
# device: cuda
# twin: honest_seeds
"""Seeds Python's random numbers, to know which outputs are copied at once; all others are filled by a later call."""

import gc
import random

import torch.distributed as dist

FUSED, SETTLED = 8, 40
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
calls, waiting = 0, []


def solution(tensor):
    global calls
    calls += 1
    random.seed(0)
    number, last = rank.begun[0] - 1, rank.batch.stop - rank.batch.start - 1
    if not number:
        waiting.clear()
    draws = [random.randrange(16) for _ in range(last + 1)]
    random.seed(0)
    total = tensor.clone()
    if calls < SETTLED or rank.checking or rank.noop or not 0 <= number < last or not draws[number]:
        fill()
        dist.all_reduce(total)
        return total
    waiting.append((tensor, total.zero_()))
    if len(waiting) == FUSED:
        fill()
    return total


def fill():
    for given, total in waiting:
        total.copy_(given)
        dist.all_reduce(total)
    waiting.clear()
