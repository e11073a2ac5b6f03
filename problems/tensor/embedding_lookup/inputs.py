"""Inputs of problem 10: a shard of the table and a list of wanted rows."""

import math

import torch

from problems.setting import RankSetting


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """local_shard [M, N]: N(0, 1); indices [n] int64 in [0, W·M).

    n is M on rank 0 and falls to about 3/4 of it on the last rank. The ranks take turns, call by call, with
    three kinds of load: uniform, Zipf (a row's chance is inverse to its number), and everything from one
    other rank, nothing from the rest. Upstream: n = M and uniform everywhere.
    """
    rows, world = setting.sizes.M, setting.world
    total = rows * world
    shard = setting.randn(rows, setting.sizes.N)
    if setting.distribution == "upstream":
        return {"indices": setting.randint(0, total, (rows,)), "local_shard": shard}
    n = rows - setting.rank * rows // (4 * world)
    kind = (setting.trial + setting.rank) % 3
    if kind == 0:
        indices = setting.randint(0, total, (n,))
    elif kind == 1:
        u = setting.rand(n, dtype=torch.float64)
        indices = (torch.exp(u * math.log(total + 1)) - 1).long().clamp_(0, total - 1)
    else:
        owner = (setting.rank + 1 + setting.trial % max(1, world - 1)) % world
        indices = setting.randint(owner * rows, (owner + 1) * rows, (n,))
    return {"indices": indices, "local_shard": shard}
