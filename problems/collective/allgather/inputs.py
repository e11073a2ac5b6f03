"""Inputs of problem 2: one dense tensor a rank."""

import torch

from problems.setting import RankSetting
from problems.shared.inputs.dense import finite_bits


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """tensor [M, N]: random finite bit patterns; upstream's own distribution is the constant rank + 1."""
    m, n = setting.sizes.M, setting.sizes.N
    if setting.distribution == "upstream":
        return {"tensor": torch.full((m, n), setting.rank + 1, dtype=setting.dtype, device=setting.device)}
    return {"tensor": finite_bits(setting, m, n)}
