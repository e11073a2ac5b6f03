"""Inputs of problem 1: one dense tensor a rank."""

import torch

from problems.setting import RankSetting


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """tensor [M, N]: independent N(0, 1); upstream's own distribution is the constant rank + 1."""
    m, n = setting.sizes.M, setting.sizes.N
    if setting.distribution == "upstream":
        return {"tensor": torch.full((m, n), setting.rank + 1, dtype=setting.dtype, device=setting.device)}
    return {"tensor": setting.randn(m, n)}
