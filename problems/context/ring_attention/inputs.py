"""Inputs of problem 54: this rank's piece of queries, keys and values."""

import torch

from problems.setting import RankSetting
from problems.shared.ring import arguments, draw_mode

__all__ = ["arguments", "draw"]

READ_BY_ARGUMENTS = ("mode",)


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """q, k, v [B, S, H, d], own, N(0, 1), and the mode (causal, scale given).

    Meaningful: one query in eight times 4, so that single scores dominate and the merge must rescale; by trial also without
    the causal mask and with a given scale.
    """
    s = setting.sizes
    q, k, v = (setting.randn(s.B, s.S, s.H, s.d) for _ in range(3))
    if setting.distribution != "upstream":
        sharp = setting.rand(s.B, s.S, s.H, 1, dtype=torch.float32) < 1 / 8
        q *= torch.where(sharp, 4.0, 1.0).to(q.dtype)
    return {"q": q, "k": k, "v": v, "mode": draw_mode(setting)}
