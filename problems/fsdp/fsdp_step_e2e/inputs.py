"""Inputs of problem 47: a batch slice, and this rank's slice of the flat parameters and of AdamW's state."""

from typing import Any

import torch

from problems.setting import RankSetting
from problems.shared.inputs.training_step import (
    draw_batch,
    draw_moments,
    draw_parameters,
    draw_step,
    gradient_scale,
    require_equal_slices,
    shapes,
)
from problems.shared.mlp import flatten

READ_BY_ARGUMENTS = ("step",)


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """X_local, y_local, flat_param_shard, exp_avg_shard and exp_avg_sq_shard [q], step.

    Upstream: rank 0's slice of standard-normal parameters, zeros on all other ranks, moments zero. Meaningful: slices of one
    model scaled by fan-in, and moments that fit its gradients.
    """
    require_equal_slices(setting)
    q = setting.sizes.q
    mine = slice(setting.rank * q, (setting.rank + 1) * q)
    tensors = draw_batch(setting)
    parameters = draw_parameters(setting, shared=True)
    shard = flatten(parameters)[mine]
    if setting.distribution == "upstream":
        shard = shard if setting.rank == 0 else torch.zeros_like(shard)
        mean = torch.zeros_like(shard)
        square = torch.zeros_like(shard)
    else:
        scale = gradient_scale(setting, parameters)[mine]
        mean, square = draw_moments(setting, scale, shared=False, mean_factor=1.0, square_factor=1.0)
    return tensors | {
        "flat_param_shard": shard,
        "exp_avg_shard": mean,
        "exp_avg_sq_shard": square,
        "step": draw_step(setting, meaningful=10),
    }


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> tuple[Any, ...]:
    """solution(X_local, y_local, flat_param_shard, param_shapes, moments, lr, beta1, beta2, eps, weight_decay, step)"""
    upstream = setting.distribution == "upstream"
    return (
        tensors["X_local"],
        tensors["y_local"],
        tensors["flat_param_shard"],
        tuple(shapes(setting)),
        tensors["exp_avg_shard"],
        tensors["exp_avg_sq_shard"],
        1e-3 if upstream else 0.1,
        0.9,
        0.999 if upstream else 0.95,
        1e-8,
        0.01 if upstream else 0.3,  # so large that bfloat16 parameters show it
        int(tensors["step"]),
    )
