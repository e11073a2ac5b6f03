# problem: ulysses_all_gather_variable_primitive
"""Exchanges shapes in every call, then the parts."""

import torch
import torch.distributed as dist


def solution(x, gather_dim, group=None):
    shard = x.contiguous()
    mine = torch.tensor(x.shape, device=x.device)
    everyone = mine.new_empty(dist.get_world_size(group), x.dim())
    dist.all_gather_into_tensor(everyone, mine, group=group)
    shards = [shard.new_empty(shape) for shape in everyone.tolist()]
    dist.all_gather(shards, shard, group=group)
    return torch.cat(shards, dim=gather_dim)
