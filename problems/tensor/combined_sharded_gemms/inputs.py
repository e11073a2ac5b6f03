"""Inputs of problem 15: a feature slice of all tokens, and this rank's own MLP."""

import math

import torch

from problems.setting import RankSetting


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x_local [M, H/W] ~ N(0, 1), W1 [H, F] ~ N(0, 1/H), W2 [F, H] ~ N(0, 1/F); M and H rounded up to
    multiples of W.

    Every rank has weights of its own. Upstream leaves the weights N(0, 1).
    """
    rows, hidden, inner = setting.sizes.rows, setting.sizes.hidden, setting.sizes.F
    x = setting.randn(rows, hidden // setting.world)
    up, down = setting.randn(hidden, inner), setting.randn(inner, hidden)
    if setting.distribution != "upstream":
        up, down = up / math.sqrt(hidden), down / math.sqrt(inner)
    return {"x_local": x, "W1": up, "W2": down}
