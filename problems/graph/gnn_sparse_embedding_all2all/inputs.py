"""Inputs of problem 67: (id, row) pairs with popular ids, crowded owners and, now and then, an idle rank."""

from typing import Any

import torch

from problems.setting import RankSetting

READ_BY_ARGUMENTS = ("count",)


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """idx [n] int64 in 0..num_nodes-1, value [n, H] N(0, 1), count [1]: how many pairs this rank really has.

    Upstream draws ids uniformly and every rank has n pairs. Otherwise half of the ids follow a power law
    (many duplicates) and an eighth of the pairs go to owner 0. In every fourth trial one owner gets nothing,
    in another one rank has nothing.
    """
    s, world = setting.sizes, setting.world
    count = s.n
    value = setting.randn(s.n, s.H)
    if setting.distribution == "upstream":
        idx = setting.randint(0, s.num_nodes, (s.n,))
    else:
        uniform = setting.rand(s.n, dtype=torch.float64)
        power = torch.where(setting.rand(s.n, dtype=torch.float32) < 0.5, uniform, uniform**4)
        idx = (power * s.num_nodes).long().clamp(max=s.num_nodes - 1)
        crowded = setting.rand(s.n, dtype=torch.float32) < 0.125
        idx = torch.where(crowded, idx - idx % world, idx)
        if world > 1 and setting.trial % 4 == 2:
            idx = torch.where(idx % world == world - 1, idx - 1, idx)
        if world > 1 and setting.trial % 4 == 3 and setting.rank == setting.trial % world:
            count = 0
    return {"idx": idx, "value": value, "count": torch.tensor([count], device=setting.device)}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The pairs that there are."""
    count = int(tensors["count"])
    return {"idx": tensors["idx"][:count], "value": tensors["value"][:count]}


def capacity(setting: RankSetting) -> int:
    """Bytes of the most crowded owner's pairs: two fair shares, what is sent to owner 0 on purpose, and the
    hottest id.
    """
    s, world = setting.sizes, setting.world
    share = 2 / world
    if setting.distribution != "upstream":
        share = 1 / 8 + (share + s.num_nodes**-0.25 / 2) * 1.1
    pairs = min(1.0, share) * world * s.n + 128
    return int(pairs * (8 + s.H * setting.dtype.itemsize)) + 4096
