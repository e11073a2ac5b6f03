"""Inputs of problem 34: one shard a rank."""

import torch

from problems.setting import RankSetting
from problems.shared.inputs.dense import finite_bits


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x [M, N], or [M, D, N] where D > 1. Meaningful: any finite values; upstream's: N(0, 1)."""
    s = setting.sizes
    shape = (s.M, s.N) if s.D == 1 else (s.M, s.D, s.N)
    return {"x": setting.randn(*shape) if setting.distribution == "upstream" else finite_bits(setting, *shape)}
