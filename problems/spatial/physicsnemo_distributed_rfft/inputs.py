"""Inputs of problem 59: columns of one real field."""

import math
from typing import Any

import torch

from problems.setting import RankSetting


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x [B, H, Wd/W] float32: this rank's columns of a field that is the same everywhere.

    Upstream: N(0, 1). Otherwise a plane wave of random wave numbers and phase is added to each image: a known
    sharp peak.
    """
    s = setting.sizes
    field = setting.randn(s.B, s.H, s.Wd, shared=True)
    if setting.distribution != "upstream":
        height = setting.randint(1, s.H // 2, (s.B, 1, 1), shared=True)
        width = setting.randint(1, s.Wd // 2, (s.B, 1, 1), shared=True)
        phase = setting.rand(s.B, 1, 1, shared=True)
        rows = torch.arange(s.H, device=setting.device)[:, None] / s.H
        columns = torch.arange(s.Wd, device=setting.device) / s.Wd
        field += 0.5 * torch.cos(2 * math.pi * (height * rows + width * columns + phase)).to(field.dtype)
    return {"x": field.chunk(setting.world, dim=2)[setting.rank].contiguous()}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The shape of the field, and the dimensions of the transform."""
    return {"s": (setting.sizes.H, setting.sizes.Wd), "dim": (1, 2)}
