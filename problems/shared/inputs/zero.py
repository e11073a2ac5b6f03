"""Inputs of the ZeRO steps (stages 1 and 2): parameters that rank 0 hands out, Adam's state cut into slices."""

from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused
from problems.shared.mlp import draw_batch, draw_moments, draw_parameters, draw_step, gradient_scale, hyperparameters

NAMES = ("W1", "b1", "W2", "b2")


def require_equal_slices(setting: RankSetting) -> None:
    """Raises SizesRefused unless the world divides the number of parameters."""
    s = setting.sizes
    if s.P % setting.world:
        raise SizesRefused(
            f"no hidden size from {s.h0} on makes the parameter count divisible by {setting.world} ranks; "
            "choose another N or another number of ranks"
        )


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """X_local, y_local, W1, b1, W2, b2, exp_avg_part and exp_avg_sq_part [q], step.

    Upstream: standard-normal weights on rank 0, zeros elsewhere, moments zero. Meaningful: weights scaled by fan-in on rank
    0 and other values elsewhere, and slices of one Adam state that fits the gradients.
    """
    require_equal_slices(setting)
    s = setting.sizes
    tensors = draw_batch(setting)
    rank0 = draw_parameters(setting, shared=True)
    if setting.distribution == "upstream":
        weights = rank0 if setting.rank == 0 else [torch.zeros_like(weight) for weight in rank0]
        mean = torch.zeros(s.q, dtype=setting.dtype, device=setting.device)
        square = torch.zeros_like(mean)
    else:
        weights = rank0 if setting.rank == 0 else draw_parameters(setting, shared=False)
        slice_scale = gradient_scale(setting, rank0)[setting.rank * s.q : (setting.rank + 1) * s.q]
        mean, square = draw_moments(setting, slice_scale, shared=False)
    tensors |= dict(zip(NAMES, weights, strict=True))
    return tensors | {"exp_avg_part": mean, "exp_avg_sq_part": square, "step": draw_step(setting, meaningful=3)}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> tuple[Any, ...]:
    """(X_local, y_local, W1, b1, W2, b2, exp_avg_part, exp_avg_sq_part, lr, beta1, beta2, eps, step)"""
    names = ("X_local", "y_local", *NAMES, "exp_avg_part", "exp_avg_sq_part")
    return (*(tensors[name] for name in names), *hyperparameters(setting), int(tensors["step"]))
