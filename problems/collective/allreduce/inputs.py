"""Inputs of problem 1: one dense tensor a rank."""

import torch

from problems.setting import RankSetting
from problems.shared.inputs.dense import ranked


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """tensor [M, N]: independent N(0, 1); upstream's own distribution is the constant rank + 1."""
    return {"tensor": ranked(setting, RankSetting.randn, setting.sizes.M, setting.sizes.N)}
