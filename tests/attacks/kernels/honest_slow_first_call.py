"""Tunes for five seconds of its first call: it times both of its variants again and again."""

import time

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
    seconds = [0.0, 0.0]
    until = time.monotonic() + 5.0
    go_on = tensor.new_ones(1)
    while go_on.item():
        for number, variant in enumerate((in_place, gathered)):
            started = time.perf_counter()
            variant(tensor)
            seconds[number] += time.perf_counter() - started
        go_on.fill_(float(time.monotonic() < until))
        dist.all_reduce(go_on, op=dist.ReduceOp.MIN)  # all ranks end together
    choice = tensor.new_tensor([float(seconds[1] < seconds[0])])
    dist.broadcast(choice, 0)
    return gathered if choice.item() else in_place


def solution(tensor):
    global best
    best = best or tuned(tensor)
    return best(tensor)
