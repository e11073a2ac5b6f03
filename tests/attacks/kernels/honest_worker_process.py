# device: cpu
"""Adds on a worker process of its own, which gets its numbers through a pipe and lives as long as the rank."""

import multiprocessing

import torch
import torch.distributed as dist


def work(pipe):
    while True:
        own, others = pipe.recv()
        pipe.send(sum(others, own))


pipe, theirs = multiprocessing.get_context("fork").Pipe()
multiprocessing.get_context("fork").Process(target=work, args=(theirs,), daemon=True).start()


def solution(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    wide = [part.double().numpy() for part in parts]
    pipe.send((wide[0], wide[1:]))
    return torch.from_numpy(pipe.recv()).to(tensor.dtype)
