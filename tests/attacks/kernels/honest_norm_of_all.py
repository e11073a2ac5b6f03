# problem: tp_muon_orthogonalization
"""The norm of all shards, in the way of a25_own_part_for_all."""

import torch
import torch.distributed as dist

from problems.tensor.tp_muon_orthogonalization.baseline import COEFFICIENTS


@torch.no_grad()
def solution(x, steps=5, coefficient_type="quintic", partition_dim=1, group=None):
    shard = x.float()
    square = shard.square().sum()
    dist.all_reduce(square, group=group)
    shard /= square.sqrt()
    for a, b, g in COEFFICIENTS[coefficient_type]:
        gram = shard @ shard.t()
        dist.all_reduce(gram, group=group)
        shard = torch.addmm(shard, torch.addmm(gram, gram, gram, beta=b, alpha=g), shard, beta=a)
    return shard.to(x.dtype)
