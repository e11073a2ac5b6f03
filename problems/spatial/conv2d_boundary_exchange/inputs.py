"""Inputs of problem 87: one strip of an image and a convolution's weight."""

from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused

READ_BY_ARGUMENTS = ("biased",)


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x [B, C, h, width], weight [C, C, k, k], bias [C], biased [1] int64 (0: no bias).

    Upstream: all N(0, 1), weight and bias of its own on every rank. Otherwise weight and bias are the same
    everywhere, the weight is scaled by 1 / sqrt(k * k * C), and every fourth trial has no bias.
    """
    s = setting.sizes
    if s.h < s.padding:
        raise SizesRefused(f"strips of {s.h} rows are thinner than the halo of {s.padding}: take more rows")
    upstream = setting.distribution == "upstream"
    x = setting.randn(s.B, s.C, s.h, s.width)
    weight = setting.randn(s.C, s.C, s.k, s.k, shared=not upstream)
    bias = setting.randn(s.C, shared=not upstream)
    if not upstream:
        weight = weight / (s.k * s.k * s.C) ** 0.5
    biased = int(upstream or setting.trial % 4 != 0)
    flag = torch.tensor([biased], dtype=torch.int64, device=setting.device)
    return {"x": x, "weight": weight, "bias": bias, "biased": flag}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The bias is None in some iterations."""
    return {"bias": tensors["bias"] if tensors["biased"].item() else None}
