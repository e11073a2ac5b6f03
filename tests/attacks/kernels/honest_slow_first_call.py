"""Tunes for five seconds of its first call: it times both of its variants again and again."""

import time

import torch
import torch.distributed as dist

best = None


def in_place(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total


def gathered(tensor):
    parts = tensor.new_empty(dist.get_world_size(), *tensor.shape)
    dist.all_gather_into_tensor(parts, tensor)
    return parts.float().sum(0).to(tensor.dtype)


def tuned(tensor):
    seconds, until = tensor.new_zeros(3, dtype=torch.float64), time.monotonic() + 5.0
    while not seconds[2]:
        for number, variant in enumerate((in_place, gathered)):
            started = time.perf_counter()
            variant(tensor)
            seconds[number] += time.perf_counter() - started
        seconds[2] = float(time.monotonic() > until)
        dist.broadcast(seconds, 0)  # all ranks end together and choose alike
    return gathered if seconds[1] < seconds[0] else in_place


def solution(tensor):
    global best
    best = best or tuned(tensor)
    return best(tensor)
