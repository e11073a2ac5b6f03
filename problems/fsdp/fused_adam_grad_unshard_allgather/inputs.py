"""Inputs of problem 43: this rank's slices of gradient, weights and Adam's state."""

import torch

from problems.setting import RankSetting
from problems.shared.inputs.training_step import arguments, draw_moments, draw_step, unit

__all__ = ["arguments", "draw"]


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """grad_shard, master_shard, exp_avg, exp_avg_sq [p] and the step counter.

    Gradient and weights are N(0, 1). Upstream's moments are zero; the meaningful ones are 0.3 N(0, 1) and 0.01 U(0.5, 1.5), so
    that the step is smooth in the gradient and moves the weights by about 0.3.
    """
    p = setting.sizes.p
    tensors = {"grad_shard": setting.randn(p), "master_shard": setting.randn(p)}
    if setting.distribution == "upstream":
        mean = torch.zeros_like(tensors["grad_shard"])
        square = torch.zeros_like(mean)
    else:
        tensors["master_shard"] *= unit(setting)
        mean, square = draw_moments(setting, torch.ones(p, device=setting.device), shared=False)
    return tensors | {"exp_avg": mean, "exp_avg_sq": square, "step": draw_step(setting, meaningful=3)}
