"""Inputs of problem 73: a vocabulary shard of logits, and the tokens' targets."""

import math

import torch

from problems.setting import RankSetting, SizesRefused


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """vocab_parallel_logits [B, S, V/W], own; target [B, S] int64, the same everywhere.

    Upstream: N(0, 1), targets (13 i + 7 + trial) mod V. Meaningful: normal, with a mean and a scale for each token and rank, so
    that no rank's sum follows from another's. Every second token has one large entry at a random place, whose exponential is 1 to
    400 times V. 6 is added at the target of every second token. One token in four has 100 added to all its logits, whose
    exponentials are infinite in float32. One column in 64 is at -1e4, and one target in four at a shard's edge.
    """
    s, world = setting.sizes, setting.world
    if s.V % world:
        raise SizesRefused(f"a vocabulary of {s.V} cannot be cut into {world} equal shards")
    logits = setting.randn(s.T, s.Vp)
    flat = torch.arange(s.T, device=setting.device)
    if setting.distribution == "upstream":
        target = (13 * flat + 7 + setting.trial) % s.V
    else:
        scale, mean = 0.5 + 2 * setting.rand(s.T, 1, dtype=torch.float32), setting.randn(s.T, 1, dtype=torch.float32)
        shift = 100.0 * (setting.rand(s.T, 1, shared=True, dtype=torch.float32) < 1 / 4)
        logits = (logits * scale + mean + shift).to(setting.dtype)
        dead = setting.rand(s.V, shared=True, dtype=torch.float32) < 1 / 64
        target = setting.randint(0, s.V, (s.T,), shared=True)
        shard = setting.randint(0, world, (s.T,), shared=True)
        edge = shard * s.Vp + torch.where(flat % 2 == 0, 0, s.Vp - 1)
        target = torch.where(setting.rand(s.T, shared=True, dtype=torch.float32) < 0.25, edge, target)
        dead[target] = False
        first = setting.rank * s.Vp
        logits.masked_fill_(dead[first : first + s.Vp], -1e4)
        peak = setting.randint(0, s.V, (s.T,), shared=True)
        peaked = setting.rand(s.T, shared=True, dtype=torch.float32) < 1 / 2
        height = math.log(s.V) + 6 * setting.rand(s.T, shared=True, dtype=torch.float32) + shift[:, 0]
        _add(logits, target - first, flat % 2 == 0, torch.full_like(height, 6.0), replace=False)
        _add(logits, peak - first, peaked, height, replace=True)
    return {"vocab_parallel_logits": logits.view(s.B, s.S, s.Vp), "target": target.view(s.B, s.S)}


def _add(logits: torch.Tensor, column: torch.Tensor, where: torch.Tensor, value: torch.Tensor, replace: bool) -> None:
    """Per row of logits [T, Vp]: adds (or puts) its value [T] in a column, where the row is chosen and the column is here."""
    here = where & (column >= 0) & (column < logits.shape[1])
    rows = here.nonzero()[:, 0]
    value = value[rows] if replace else logits[rows, column[rows]] + value[rows]
    logits[rows, column[rows]] = value.to(logits.dtype)
