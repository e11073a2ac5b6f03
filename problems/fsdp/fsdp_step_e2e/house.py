"""House kernel: FSDP step without autograd; shards are gathered and reduced beside the products."""

import torch

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.columns import kernel_for, push_columns
from sandbox.kit.blocks.perceptron import Tensors
from sandbox.kit.blocks.sharded_adam import Adam
from sandbox.kit.blocks.zero_step import compile_all, step_beside

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
    if X_local.is_cuda:
        compile_all(lambda _: kernel_for(cuda.unit_of(flat_param_shard)), flat_param_shard.dtype, team.world)
    q = flat_param_shard.numel()
    weight = symm.out(q * team.world, flat_param_shard.dtype, "weight", ring=2)
    old = [shard.contiguous() for shard in (flat_param_shard, exp_avg_shard, exp_avg_sq_shard)]
    updated = torch.empty_like(old[0]), torch.empty_like(old[1]), torch.empty_like(old[2])
    step_beside((X_local, y_local), weight, param_shapes, adam, q, old, updated, (), old[:1], gather)
    return updated


def gather(given: Tensors, weight: torch.Tensor, first: int, last: int, base: int, most_blocks: int) -> None:
    """Stores this rank's shard at all ranks, with the first layer: then all links are in use, whoever owns a layer."""
    if first == 0:
        push_columns(given[0][None], weight[None], symm.connect())
