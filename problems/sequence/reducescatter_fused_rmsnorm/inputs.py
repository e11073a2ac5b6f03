"""Inputs of problem 45: partial activations of all ranks' rows, and the norm's gain."""

import torch

from problems.setting import RankSetting

EPS = 1e-5


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """rs_input_1d [W·rows·H], own; gamma [H], the same everywhere; both N(0, 1).

    Meaningful: half of the rows are scaled by sqrt(eps W), where the mean square of the averaged row is about eps, so that
    neither eps nor the division by W can be left out.
    """
    s = setting.sizes
    partial = setting.randn(setting.world, s.rows, s.H)
    gamma = setting.randn(s.H, shared=True)
    if setting.distribution != "upstream":
        small = setting.rand(setting.world, s.rows, 1, shared=True, dtype=torch.float32) < 0.5
        partial *= torch.where(small, (EPS * setting.world) ** 0.5, 1.0).to(partial.dtype)
    return {"rs_input_1d": partial.view(-1), "gamma": gamma}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, float]:
    """The epsilon that inputs are drawn for."""
    return {"eps": EPS}
