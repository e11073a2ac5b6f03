"""Inputs of problem 86: a slice of a momentum matrix whose singular values fall, some of them to nearly nothing."""

import math

import torch

from problems.setting import RankSetting

LARGE = 2
"""Columns of a rank that have half of its square sum."""


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x [m, columns] in bfloat16.

    Upstream: N(0, 1) + 0.01 rank, whose first step changes next to nothing. Otherwise singular values fall about as i^-p,
    with p from 1/2 to 1, so that the sum of all ranks' products is needed from the first step on. Every rank has a scale
    of its own between 1/8 and 1, so that no rank can tell the norm from its own columns, and LARGE columns at random places have
    half of the square sum, so that no part of the columns gives it. In every fourth trial half of the singular values are a
    thousandth of what they would be (up to bfloat16's rounding).
    """
    s = setting.sizes
    x = setting.randn(s.m, s.columns, dtype=torch.float32)
    if setting.distribution == "upstream":
        x += 0.01 * setting.rank
    else:
        basis = setting.randn(s.m, s.m, shared=True, dtype=torch.float32) / math.sqrt(s.m)
        power = 0.5 + 0.5 * setting.rand(1, shared=True, dtype=torch.float32)
        strength = torch.arange(1, s.m + 1, device=setting.device) ** -power
        if setting.trial % 4 == 3:
            strength[s.m // 2 :] *= 1e-3
        x = (basis * (strength / strength.square().mean().sqrt())) @ x
        x *= torch.exp2(-3 * setting.rand(1, dtype=torch.float32))
        x[:, setting.randint(0, s.columns, (LARGE,))] *= math.sqrt(s.columns / LARGE)
    return {"x": x.to(torch.bfloat16)}
