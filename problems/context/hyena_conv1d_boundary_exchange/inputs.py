"""Inputs of problem 71: two chunks of a long sequence, and a short filter per channel."""

import torch

from problems.setting import RankSetting, SizesRefused


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x [B, D, 2C] N(0, 1); weight [D, 1, K] N(0, 1/K), the same on all ranks; upstream N(0, 1) per rank."""
    s = setting.sizes
    if s.C < s.K - 1:
        raise SizesRefused(f"C={s.C} is shorter than the K-1={s.K - 1} samples that the next chunk needs")
    x = setting.randn(s.B, s.D, 2 * s.C)
    if setting.distribution == "upstream":
        return {"x": x, "weight": setting.randn(s.D, 1, s.K)}
    return {"x": x, "weight": setting.randn(s.D, 1, s.K, shared=True) * s.K**-0.5}
