"""Fully sharded training step: gather the parameters, differentiate, reduce-scatter the gradient, AdamW on the shard."""

import torch
import torch.distributed as dist

from problems.shared.mlp import adam_step, flat_gradient, split


def solution(
    X_local: torch.Tensor,
    y_local: torch.Tensor,
    flat_param_shard: torch.Tensor,
    param_shapes: tuple[tuple[int, ...], ...],
    exp_avg_shard: torch.Tensor,
    exp_avg_sq_shard: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """X_local [n, d_in], y_local [n, d_out]; shards [q] of the flat vector W1, b1, W2, b2, whose shapes are param_shapes.

    Returns this rank's (parameters, exp_avg, exp_avg_sq) [q] after the step, in the run dtype.
    """
    world = dist.get_world_size()
    weight = flat_param_shard.new_empty(world * flat_param_shard.numel())
    dist.all_gather_into_tensor(weight, flat_param_shard)

    gradient = flat_gradient(X_local, y_local, split(weight, param_shapes))
    own_gradient = torch.empty_like(flat_param_shard)
    dist.reduce_scatter_tensor(own_gradient, gradient, op=dist.ReduceOp.SUM)
    own_gradient /= world

    return adam_step(
        flat_param_shard, exp_avg_shard, exp_avg_sq_shard, own_gradient, lr, beta1, beta2, eps, step, weight_decay
    )
