"""House kernel: FSDP step without autograd; shards are gathered and reduced beside the products."""

import torch

from sandbox.kit import symm
from sandbox.kit.blocks.columns import push_columns
from sandbox.kit.blocks.sharded_adam import Adam
from sandbox.kit.blocks.zero_step import LARGE, compile_all, sliced, step_at_once, step_beside

symm.reserve(4 << 30)  # two whole vectors and a gradient of the largest sizes


@torch.no_grad()
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

    Returns this rank's (parameters, exp_avg, exp_avg_sq) [q] after the step. Gradients are summed in float32, and AdamW rounds
    once.
    """
    team, adam = symm.connect(), Adam(lr, beta1, beta2, eps, step, weight_decay)
    q, dtype = flat_param_shard.numel(), flat_param_shard.dtype
    if X_local.is_cuda:
        compile_all(dtype, team.world)
    weight = symm.out(q * team.world, dtype, "weight", ring=2)
    batch = X_local.contiguous(), y_local.contiguous()
    old = [shard.contiguous() for shard in (flat_param_shard, exp_avg_shard, exp_avg_sq_shard)]
    updated = torch.empty_like(old[0]), torch.empty_like(old[1]), torch.empty_like(old[2])
    if weight.is_cuda and weight.nbytes >= LARGE:
        plan = sliced(tuple(map(tuple, param_shapes)), q, team.world, ())
        step_beside(batch, old[:1], (), weight, old[1:], updated, plan, adam)
    else:
        push_columns(old[0][None], weight[None], team)
        step_at_once(batch, weight, param_shapes, adam, q, old, updated, ())
    return updated
