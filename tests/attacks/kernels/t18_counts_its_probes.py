# expect: WRONG_RESULT | PASS
# not_faster: yes
# calls: 5
# twin: honest_buffer_reuse
"""Works ahead once it has seen inputs change as often as they do in a run's probes: on all ranks, and on one."""

import gc

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
seen, copies, totals, changed, ahead = [0, 0, 0], [], None, False, False


def solution(tensor):
    global changed, ahead, totals
    number = rank.begun[0] - 1
    if number < 0 and not rank.checking:  # an untimed call, in which the ranks agree
        flag = torch.tensor([int(changed)]).to(tensor.device)
        dist.all_reduce(flag)
        seen[min(int(flag), 2)] += 1
        ahead, changed = seen[2] >= 2 and seen[1] >= 2, False
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
