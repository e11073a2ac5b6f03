"""Inputs of problem 37: attention's output, all positions of the rank's own heads."""

import torch

from problems.setting import RankSetting

# (order of the dimensions, seq_dim, head_dim)
_ORDERS = (("BSAD", 1, 2), ("BASD", 2, 1), ("SABD", 0, 1))


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x [B, S, A, D], N(0, 1), with A heads on each rank; other orders of the dimensions by turns, as `layouts` allows."""
    s = setting.sizes
    order, seq_dim, head_dim = _ORDERS[setting.trial % min(s.layouts, len(_ORDERS))]
    x = setting.randn(*(getattr(s, name) for name in order))
    return {"x": x, "seq_dim": torch.tensor(seq_dim), "head_dim": torch.tensor(head_dim)}
