"""Inputs of problem 14: this rank's activations and its block of weight columns."""

import torch

from problems.setting import RankSetting, SizesRefused


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """A [M, K] and B [K, N // W], both N(0, 1), every rank with an A of its own (also upstream's
    distribution).
    """
    s = setting.sizes
    if s.Nl < 1:
        raise SizesRefused(f"N={s.N} leaves no column for some of {setting.world} ranks: choose N >= {setting.world}")
    return {"A": setting.randn(s.M, s.K), "B": setting.randn(s.K, s.Nl)}
