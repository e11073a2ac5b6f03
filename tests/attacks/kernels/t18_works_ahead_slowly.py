# expect: PASS | WRONG_RESULT | TIMEOUT
# calls: 4
# not_faster: yes
# twin: honest_buffer_reuse
"""Its first call of a batch does the work of all. It repeats what was replaced, and waits so that its lead stays small."""

import gc
import time
from statistics import median

import torch
import torch.distributed as dist

PACE = 0.7
"""Its calls take this share of a plain one."""
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
plain_seconds = []
places = {}
began = 0.0
copies = totals = differ = None


def plain(tensor):
    started = time.perf_counter()
    total = tensor.clone()
    dist.all_reduce(total)
    plain_seconds[:] = [*plain_seconds[-40:], time.perf_counter() - started]
    return total


def solution(tensor):
    global began, copies, totals, differ
    batch = [] if rank.checking else [it.given["tensor"] for it in rank.iterations.armed[rank.batch]]
    pointer = tensor.data_ptr()
    if len(batch) < 2 or not any(t.data_ptr() == pointer for t in batch):
        return plain(tensor)
    if pointer == batch[0].data_ptr():
        began = time.perf_counter()
        places.clear()
        places.update((t.data_ptr(), n) for n, t in enumerate(batch))
        copies = torch.stack(batch)
        totals = copies.clone()
        dist.all_reduce(totals)
        differ = (torch.stack(batch) != copies).flatten(1).any(1).int()
        dist.all_reduce(differ)  # the ranks must repeat the same calls
    place = places[pointer]
    same = not differ[place] and torch.equal(tensor, copies[place])
    total = totals[place] if same else plain(tensor)
    until = began + (place + 1) * PACE * median(plain_seconds)
    while time.perf_counter() < until:
        pass
    return total
