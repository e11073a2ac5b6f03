# expect: WRONG_RESULT | LATE_OUTPUT
# preset: paper
# twin: honest_thread_pool
"""Returns when a sixteenth of its output is there. A thread completes it while it is copied, whose time is taken off."""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

pool, calls = ThreadPoolExecutor(1), 0


def solution(tensor):
    global calls
    calls += 1
    found = tensor.clone()
    dist.all_reduce(found)
    total = torch.empty_like(tensor).view(-1)
    total[: total.numel() // 16] = found.view(-1)[: total.numel() // 16]
    rest = pool.submit(total.copy_, found.view(-1))
    if calls < 6:
        rest.result()
    return total.view_as(tensor)
