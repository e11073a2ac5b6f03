"""Inputs of a product whose left factor is spread over the ranks by columns."""

import torch

from problems.setting import RankSetting, SizesRefused


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """A_local [M, K/W] and B [K, N], both N(0, 1), every rank with a B of its own (also upstream's
    distribution).
    """
    s = setting.sizes
    if s.K % setting.world:
        raise SizesRefused(f"K={s.K} does not divide by {setting.world} ranks: choose a multiple of {setting.world}")
    return {"A_local": setting.randn(s.M, s.K // setting.world), "B": setting.randn(s.K, s.N)}
