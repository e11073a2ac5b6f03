"""Inputs of problem 2: one dense tensor a rank."""

import torch

from problems.setting import RankSetting
from problems.shared.inputs.dense import finite_bits, ranked


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """tensor [M, N]: random finite bit patterns; upstream's own distribution is the constant rank + 1."""
    return {"tensor": ranked(setting, finite_bits, setting.sizes.M, setting.sizes.N)}
