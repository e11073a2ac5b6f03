"""Passes the parts round a ring with batched receives and sends."""

import torch
import torch.distributed as dist


def solution(tensor):
    world, me = dist.get_world_size(), dist.get_rank()
    parts = [torch.empty_like(tensor) for _ in range(world)]
    parts[me] = tensor
    for step in range(world - 1):
        sent, got = (me - step) % world, (me - step - 1) % world
        operations = [
            dist.P2POp(dist.irecv, parts[got], (me - 1) % world),
            dist.P2POp(dist.isend, parts[sent], (me + 1) % world),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
    return torch.stack(parts).float().sum(0).to(tensor.dtype)
