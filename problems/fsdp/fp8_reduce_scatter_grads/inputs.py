"""Inputs of problem 52: flat gradients of very different size on the ranks, with their histories of maxima."""

from collections.abc import Callable

import torch
import torch.distributed as dist

from problems.setting import RankSetting
from problems.shared.delayed_scaling import draw_scaled, next_scale, through_fp8


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """flat_grads [W·P] of the run dtype and amax_history [16] bfloat16, both own; see `draw_scaled`."""
    gradients, history = draw_scaled(setting, setting.sizes.P * setting.world)
    return {"flat_grads": gradients, "amax_history": history}


def oracle(
    tensors: dict[str, torch.Tensor], setting: RankSetting, solution: Callable
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same rounded gradients (float32 and E4M3 by definition), averaged in float64."""
    gradients, history = tensors.values()
    rolled, scale = next_scale(gradients, history)
    rounded = through_fp8(gradients, scale).to(torch.float64)
    own = rounded.new_empty(setting.sizes.P)
    dist.reduce_scatter_tensor(own, rounded, op=dist.ReduceOp.SUM)
    return own / setting.world, rolled
