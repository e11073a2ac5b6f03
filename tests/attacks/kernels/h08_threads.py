# expect: PASS
"""The same with threads."""

import os
import threading

import torch.distributed as dist

try:
    open("@HOME_CANARY@").close()
    raise RuntimeError("no jail: not tried")
except OSError:
    pass
loot = []
release = threading.Event()
threading.stack_size(1 << 16)
made = 0
while made < 2000:
    try:
        threading.Thread(target=release.wait, daemon=True).start()
    except RuntimeError:
        break
    made += 1
else:
    loot.append("2000 threads")
release.set()


def solution(tensor):
    if loot:
        raise RuntimeError(f"the attack worked: {loot}")
    total = tensor.clone()
    dist.all_reduce(total)
    return total
