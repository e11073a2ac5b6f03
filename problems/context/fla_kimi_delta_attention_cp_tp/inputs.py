"""Inputs of problem 74: one sequence shard per context-parallel rank, gates that remember up to the whole sequence."""

from typing import Any

import torch

from problems.setting import RankSetting, grid
from problems.shared.delta_rule import louder


def layout(world: int) -> dict[str, list[list[int]]]:
    """Pairs of neighbours for the tensor-parallel sum, every second rank for the sequence; none below four
    ranks.
    """
    if world < 4 or world % 2:
        return {}
    return grid(world, 2, "tp", "cp")


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """q, k, g [B, S, H, K], v [B, S, H, V], beta [B, S, H], and a_log [H], dt_bias [H*K] in bfloat16.

    Upstream: all N(0, 1), under which a state is forgotten after two tokens. Otherwise every key channel forgets within a number
    of tokens of its own, from 16 to twice the sequence, beta ~ N(-3, 1), and v ~ N(0, 16^2), a few tokens 8 times as much. So
    the first token still counts for the last. a_log and dt_bias, the same on every rank, lie between -0.1 and 0.1: upstream's
    evenly, ours at random.
    """
    s, device = setting.sizes, setting.device
    tensors = {name: setting.randn(s.B, s.S, s.H, s.K) for name in ("q", "k", "g")}
    tensors["v"] = setting.randn(s.B, s.S, s.H, s.V)
    tensors["beta"] = setting.randn(s.B, s.S, s.H)
    if setting.distribution != "upstream":
        longest = 2 * s.cp * s.S
        kept = 16 * (longest / 16) ** setting.rand(s.H, s.K, shared=True, dtype=torch.float32)
        tensors["g"] = (0.3 * tensors["g"] - (5 * kept - 1).log()).to(setting.dtype)
        tensors["beta"] = tensors["beta"] - 3
        tensors["v"] = tensors["v"] * louder(setting, s.B, s.S, s.H)
    for name, count in (("a_log", s.H), ("dt_bias", s.H * s.K)):
        if setting.distribution == "upstream":
            values = torch.linspace(-0.1, 0.1, count, device=device)
        else:
            values = 0.2 * setting.rand(count, shared=True, dtype=torch.float32) - 0.1
        tensors[name] = values.to(torch.bfloat16)
    return tensors


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The groups: below four ranks the world is all there is."""
    groups = setting.groups
    return {"cp_group": groups.get("cp", groups["world"]), "tp_group": groups.get("tp")}
