"""Prepares and sums halves on the threads of a pool that lives as long as the rank."""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

pool = ThreadPoolExecutor(2)


def solution(tensor):
    parts = tensor.new_empty(dist.get_world_size(), *tensor.shape)
    dist.all_gather_into_tensor(parts, tensor)
    halves = pool.map(lambda half: half.float().sum(0).to(half.dtype), parts.flatten(1).chunk(2, dim=1))
    return torch.cat(list(halves)).view(tensor.shape)
