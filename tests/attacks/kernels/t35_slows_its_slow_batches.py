# expect: PASS
# not_faster: yes
"""The baseline, which makes its slowest batches slower still: up to five are then set aside with their pairs."""

import gc
import time
from statistics import quantiles

import torch.distributed as dist

MOST = 5
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
done, seconds, slowed, began = rank.done, [], 0, 0.0


def done_late():
    global slowed
    if not rank.checking and not rank.noop:
        calls = rank.batch.stop - rank.batch.start
        seconds.append((time.perf_counter() - began) / calls)
        if slowed < MOST and len(seconds) > 8 and seconds[-1] > quantiles(seconds, n=8)[-1]:
            slowed += 1
            time.sleep(2 * seconds[-1] * calls)
    done()


rank.done = done_late


def solution(tensor):
    global began
    if rank.begun[0] == 1:
        began = time.perf_counter()
    total = tensor.clone()
    dist.all_reduce(total)
    return total
