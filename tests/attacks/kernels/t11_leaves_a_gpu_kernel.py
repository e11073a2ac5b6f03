# expect: BASELINE_DISTURBED
# problem: allreduce
# attack: T11
# twin: honest_async
# device: cuda
"""Leaves one thread busy on the GPU after every batch: contexts take turns, so the baseline would get half of the time."""

import threading
import time

import torch
import torch.distributed as dist

MILLISECOND = 2_000_000  # in cycles
called = [time.perf_counter(), False]


def leave_something():
    side = torch.cuda.Stream()
    while True:
        time.sleep(0.0002)
        if called[1] and time.perf_counter() - called[0] > 0.0005:
            called[1] = False
            with torch.cuda.stream(side):
                torch.cuda._sleep(150 * MILLISECOND)


threading.Thread(target=leave_something, daemon=True).start()


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    called[:] = time.perf_counter(), True
    return total
