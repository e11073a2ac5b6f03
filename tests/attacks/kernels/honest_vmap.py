"""Adds the gathered parts with torch.vmap."""

import torch
import torch.distributed as dist


def solution(tensor):
    parts = tensor.new_empty(dist.get_world_size(), *tensor.shape)
    dist.all_gather_into_tensor(parts, tensor)
    flat = parts.reshape(parts.shape[0], -1)
    return torch.vmap(lambda column: column.float().sum(), in_dims=1)(flat).to(tensor.dtype).view(tensor.shape)
