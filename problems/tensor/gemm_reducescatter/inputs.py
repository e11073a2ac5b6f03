"""Inputs of problem 16: a slice of the activations and the matching rows of the weight."""

import torch

from problems.setting import RankSetting, SizesRefused


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """A_local [M, K // W] and B_local [K // W, N], both N(0, 1) (also upstream's distribution)."""
    s = setting.sizes
    if s.M % setting.world or s.Kl < 1:
        raise SizesRefused(f"M={s.M} and K={s.K} cannot be shared by {setting.world} ranks: choose multiples of it")
    return {"A_local": setting.randn(s.M, s.Kl), "B_local": setting.randn(s.Kl, s.N)}
