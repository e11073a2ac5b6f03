# expect: LATE_OUTPUT | PROTOCOL | PASS
# not_faster: yes
# calls: 5
# twin: honest_buffer_reuse
"""Does the work of eight calls in one, says that all but the last have ended, and leaves junk as their outputs until they have."""

import gc

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
begun, totals = rank.begun, {}
never_less = {"__setitem__": lambda page, at, number: begun.__setitem__(0, number and max(number, begun[0]))}
rank.begun = type("Page", (), never_less)()


def solution(tensor):
    if tensor.data_ptr() not in totals:
        batch = rank.iterations.armed[rank.batch] if begun[0] and not rank.checking else []
        at = next((n for n, each in enumerate(batch) if each.arguments[0] is tensor), 0)
        group = [tensor, *(each.arguments[0] for each in batch[at + 1 : at + 8])]
        for each in batch[at : at + len(group) - 1]:
            each.slot.targets[0].view(-1)[:1] = 1
        begun[0] += len(group) - 1
        together = torch.stack(group)
        dist.all_reduce(together)
        totals.update(zip([each.data_ptr() for each in group], together, strict=True))
    return totals.pop(tensor.data_ptr())
