"""Inputs of problem 18: tokens whose local and global mean squares differ by factors."""

import torch

from problems.setting import RankSetting


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """local_hidden_states [M, N] and local_weight [N] ~ N(0, 1).

    Row i is scaled by e^u with u uniform in [-4, 4], alike on all ranks, and each rank's part of it by a 2^v of its own with v
    uniform in [-2, 2]; one row in 16 is tiny (1e-3, where epsilon matters) and one in 16 is zero. Upstream: N(0, 1) throughout.
    """
    m, n = setting.sizes.M, setting.sizes.N
    x, weight = setting.randn(m, n), setting.randn(n)
    if setting.distribution != "upstream":
        u = setting.rand(m, 1, shared=True, dtype=torch.float32) * 8 - 4
        kind = setting.randint(0, 16, (m, 1), shared=True)
        row = torch.exp(u) * torch.exp2(setting.rand(m, 1, dtype=torch.float32) * 4 - 2)
        row = torch.where(kind == 0, 1e-3, row).masked_fill(kind == 1, 0.0)
        x = (x * row).to(setting.dtype)
    return {"local_hidden_states": x, "local_weight": weight}
