# expect: WRONG_RESULT | LATE_OUTPUT | WRONG_STRUCTURE | BASELINE_DISTURBED | TIMEOUT | PROTOCOL | PASS
# not_faster: yes
# twin: honest_shared_scratch
"""Says DONE at once; a child that was born in the batch does its work meanwhile. Zombies make looking for newcomers slow."""

import gc
import os

import torch

from sandbox.kit import symm

DONE = 69
ZOMBIES = 60
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
handler = rank.handlers
go = next(order for order in handler if order.__name__ == "Go")
run = handler[go]
for _ in range(ZOMBIES):
    if os.fork() == 0:
        os._exit(0)


def summed(tensor):
    mine = symm.stage(tensor)
    symm.barrier()
    parts = torch.stack(list(symm.peers(mine)))
    symm.barrier()
    return parts.float().sum(0).to(tensor.dtype)


def early(order, fds):
    if rank.checking or rank.noop:
        run(order, fds)
        return
    if os.fork() == 0:
        try:
            for arguments, _, _, slot in rank.iterations.armed[rank.batch]:
                slot.put(summed(*arguments))
        finally:
            os._exit(0)
    rank.say(DONE, 0)


handler[go] = early


def solution(tensor):
    return summed(tensor)
