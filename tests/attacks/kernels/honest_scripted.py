"""Adds the gathered parts in a function compiled by torch.jit."""

import torch
import torch.distributed as dist


@torch.jit.script
def added(parts: torch.Tensor) -> torch.Tensor:
    return parts.float().sum(0).to(parts.dtype)


def solution(tensor):
    parts = tensor.new_empty(dist.get_world_size(), *tensor.shape)
    dist.all_gather_into_tensor(parts, tensor)
    return added(parts)
