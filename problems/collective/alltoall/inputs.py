"""Inputs of problem 8: one chunk for every rank."""

import torch

from problems.setting import RankSetting
from problems.shared.inputs.dense import finite_bits


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """tensor [W, M, N]: random finite bit patterns; upstream's chunk d on rank r is the constant 10 r + d."""
    w, m, n = setting.world, setting.sizes.M, setting.sizes.N
    if setting.distribution == "upstream":
        values = torch.arange(w, dtype=setting.dtype, device=setting.device) + 10 * setting.rank
        return {"tensor": values.view(-1, 1, 1).expand(-1, m, n).contiguous()}
    return {"tensor": finite_bits(setting, w, m, n)}
