"""Inputs of problem 40: a batch slice, and parameters with Adam's state that only rank 0 holds rightly."""

import torch

from problems.setting import RankSetting
from problems.shared.inputs.training_step import (
    arguments,
    draw_batch,
    draw_moments,
    draw_parameters,
    draw_step,
    gradient_scale,
    shapes,
)
from problems.shared.mlp import split

__all__ = ["arguments", "draw"]

NAMES = ("W1", "b1", "W2", "b2")


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """Batch slices X_local, y_local; per parameter its weight, `exp_avg_` and `exp_avg_sq_`; the step counter.

    Upstream: standard-normal weights on rank 0, zeros elsewhere, moments zero. Meaningful: weights scaled by fan-in and
    moments that fit the gradients on rank 0; every other rank holds values of its own, which the step must not use.
    """
    tensors = draw_batch(setting)
    rank0 = draw_parameters(setting, shared=True)
    if setting.distribution == "upstream":
        weights = rank0 if setting.rank == 0 else [torch.zeros_like(weight) for weight in rank0]
        means = squares = [torch.zeros_like(weight) for weight in rank0]
    else:
        scale = gradient_scale(setting, rank0)
        weights = rank0 if setting.rank == 0 else draw_parameters(setting, shared=False)
        mean, square = draw_moments(setting, scale, shared=False)
        means, squares = split(mean, shapes(setting)), split(square, shapes(setting))
    for name, weight, mean, square in zip(NAMES, weights, means, squares, strict=True):
        tensors[name] = weight
        tensors[f"exp_avg_{name}"] = mean
        tensors[f"exp_avg_sq_{name}"] = square
    tensors["step"] = draw_step(setting, meaningful=3)
    return tensors
