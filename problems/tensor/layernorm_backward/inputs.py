"""Inputs of problem 9: normalised activations and output gradients of this rank's tokens."""

import torch

from problems.setting import RankSetting

LARGE = 8
"""Rows of a rank that carry half of the sums."""


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """X_hat [M, N] with mean 0 and variance 1 in every row; dY [M, N] with a scale per rank and a mean and a
    slope per column.

    The means and slopes keep the column sums from cancelling. A few rows at random places carry half of the sums, so
    that no part of the rows gives them. Upstream: X_hat has rows of Euclidean length 1,
    dY is N(0, 1).
    """
    m, n = setting.sizes.M, setting.sizes.N
    wide = torch.promote_types(setting.dtype, torch.float32)
    if setting.distribution == "upstream":
        x = setting.randn(m, n)
        return {"X_hat": x / (x.norm(dim=-1, keepdim=True) + 1e-5), "dY": setting.randn(m, n)}
    x = setting.randn(m, n, dtype=wide)
    x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=0)
    scale = torch.exp2(2 * setting.rand(1, dtype=wide) - 1)
    mean = setting.randn(n, shared=True, dtype=wide)
    slope = setting.randn(n, shared=True, dtype=wide)
    gradient = scale * (setting.randn(m, n, dtype=wide) + mean + slope * x)
    gradient[setting.randint(0, m, (LARGE,))] *= min(max(1.0, m / LARGE), 1000.0)
    return {"X_hat": x.to(setting.dtype), "dY": gradient.to(setting.dtype)}
