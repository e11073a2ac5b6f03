"""The tail of a sharded optimizer's step: Adam on the own slice, then an all-gather of the new weights."""

import torch
import torch.distributed as dist

from problems.shared.mlp import adam_step


@torch.no_grad()
def solution(
    grad_shard: torch.Tensor,
    master_shard: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
) -> torch.Tensor:
    """Four shards [p] of the run dtype -> [W·p]: the updated weights of all ranks in rank order. step >= 1, p >= 1."""
    assert step >= 1, "step counts from 1"
    assert master_shard.numel() > 0, "the shard is empty"
    updated, _, _ = adam_step(master_shard, exp_avg, exp_avg_sq, grad_shard, lr, beta1, beta2, eps, step)
    gathered = updated.new_empty(dist.get_world_size() * updated.numel())
    dist.all_gather_into_tensor(gathered, updated)
    return gathered
