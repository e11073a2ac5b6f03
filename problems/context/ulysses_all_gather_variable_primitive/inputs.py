"""Inputs of problem 35: shards of different lengths."""

import torch

from problems.setting import RankSetting
from problems.shared.inputs.dense import finite_bits

LONGEST = 2
"""No shard is longer than this many times M."""


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x [L, N], or [N, L] where gather_dim is 1.

    Meaningful: L in [M/2, 3M/2], but 2M on one rank and, with three ranks or more, 0 on another; any finite values.
    Upstream's: L = M everywhere, N(0, 1).
    """
    s, world = setting.sizes, setting.world
    if setting.distribution == "upstream":
        return {"x": setting.randn(s.M, s.N), "gather_dim": torch.tensor(0)}
    lengths = setting.randint(max(1, s.M // 2), 3 * s.M // 2 + 1, (world,), shared=True)
    order = setting.permutation(world, shared=True)
    lengths[order[0]] = LONGEST * s.M
    if world > 2:
        lengths[order[1]] = 0
    length = int(lengths[setting.rank])
    gather_dim = setting.trial % min(s.layouts, 2)
    shape = (length, s.N) if gather_dim == 0 else (s.N, length)
    return {"x": finite_bits(setting, *shape), "gather_dim": torch.tensor(gather_dim)}
