"""Inputs of problem 13: a slice of the activations and the matching rows of the weight."""

import torch

from problems.setting import RankSetting


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """A_local [M, K] and B_local [K, N], both N(0, 1), independent on every rank (also upstream's distribution)."""
    s = setting.sizes
    return {"A_local": setting.randn(s.M, s.K), "B_local": setting.randn(s.K, s.N)}
