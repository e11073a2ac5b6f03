"""Gradients rounded through FP8 with a delayed scale, then averaged by a reduce-scatter."""

import torch
import torch.distributed as dist

from problems.shared.delayed_scaling import next_scale, through_fp8


@torch.no_grad()
def solution(flat_grads: torch.Tensor, amax_history: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """flat_grads [W·P] of the run dtype, amax_history [16] bfloat16, both of this rank alone.

    Returns (shard [P]: the mean over ranks of the FP8-rounded gradients at this rank's place, the new history [16]).
    """
    history, scale = next_scale(flat_grads, amax_history)
    rounded = through_fp8(flat_grads, scale)
    world = dist.get_world_size()
    shard = rounded.new_empty(rounded.numel() // world)
    dist.reduce_scatter_tensor(shard, rounded, op=dist.ReduceOp.SUM)
    shard /= world
    return shard, history
