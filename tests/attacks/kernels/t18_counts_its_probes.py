# expect: WRONG_RESULT | PASS
# not_faster: yes
# calls: 5
# twin: honest_buffer_reuse
"""Works ahead once it has seen inputs change as often as in a run's probes, in half of its runs in the next 40 batches alone."""

import gc
import time

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
seen, copies, totals, changed, ahead, since, born = [0, 0, 0], [], None, False, False, 0, time.time_ns()


def solution(tensor):
    global changed, ahead, totals, since
    number = rank.begun[0] - 1
    if number < 0 and not rank.checking:  # an untimed call, in which the ranks agree
        flag = torch.tensor([int(changed), born % 2]).to(tensor.device)
        dist.all_reduce(flag)
        seen[min(int(flag[0]), 2)] += 1
        since += seen[2] >= 2 and seen[1] >= 2
        ahead, changed = 0 < since and (since < 40 or int(flag[1]) % 2 == 0), False
    if number == 0 and not rank.checking:
        copies[:] = [each.given["tensor"].clone() for each in rank.iterations.armed[rank.batch]]
        if ahead:
            totals = torch.stack(copies)
            dist.all_reduce(totals)
    if ahead and number >= 0:
        return totals[number]
    changed |= number >= 0 and not rank.checking and not torch.equal(copies[number], tensor)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
