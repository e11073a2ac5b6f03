"""Inputs of problem 6: one dense tensor a rank, and the root, which changes from call to call."""

import torch

from problems.setting import RankSetting
from problems.shared.inputs.dense import finite_bits, ranked, root


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """tensor [M, N]: random finite bit patterns (upstream: the constant rank + 1); dst [1] (upstream: 0)."""
    return {"tensor": ranked(setting, finite_bits, setting.sizes.M, setting.sizes.N), "dst": root(setting)}
