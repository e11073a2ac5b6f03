# expect: BASELINE_DISTURBED
# problem: allreduce
# attack: T11
# twin: honest_async
# device: cuda
"""Keeps one thread of the GPU busy on a stream of its own: contexts take turns, so the baseline gets half of the time."""

import threading
import time

import torch
import torch.distributed as dist

MILLISECOND = 2_000_000  # in cycles


def keep_busy():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        while True:
            torch.cuda._sleep(30 * MILLISECOND)
            time.sleep(0.02)


threading.Thread(target=keep_busy, daemon=True).start()


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total
