# expect: PASS
# problem: allreduce
# attack: H8
# twin: honest
"""Forks until it may not any more, which must be soon; none of the processes is left."""

import os
import time

import torch.distributed as dist

if os.readlink("/proc/self/ns/pid") == "@PID_NAMESPACE@":
    raise RuntimeError("no namespace of its own: not tried")
loot = []
made = 0
while made < 2000:
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    made += 1
else:
    loot.append("2000 processes")


def solution(tensor):
    if loot:
        raise RuntimeError(f"the attack worked: {loot}")
    total = tensor.clone()
    dist.all_reduce(total)
    return total
