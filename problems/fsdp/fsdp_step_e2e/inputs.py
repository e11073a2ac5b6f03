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


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The parameters' shapes, and rates at which one step shows: upstream's, or larger ones."""
    rates = (1e-3, 0.999, 0.01) if setting.distribution == "upstream" else (0.1, 0.95, 0.3)
    return dict(zip(("lr", "beta2", "weight_decay"), rates, strict=True)) | {"param_shapes": tuple(shapes(setting))}
