"""Inputs of problem 7: a full-size partial sum on every rank."""

import torch

from problems.setting import RankSetting


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """tensor [W·M, N]: independent N(0, 1); upstream's own distribution is the constant rank + 1."""
    rows, n = setting.world * setting.sizes.M, setting.sizes.N
    if setting.distribution == "upstream":
        return {"tensor": torch.full((rows, n), setting.rank + 1, dtype=setting.dtype, device=setting.device)}
    return {"tensor": setting.randn(rows, n)}
