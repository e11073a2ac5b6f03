"""Inputs of problem 32: tokens, a router, one gated MLP a rank, and a LoRA pair for each of its projections."""

import math

import torch

from problems.setting import RankSetting, SizesRefused
from problems.shared.inputs.moe_layer import arguments, draw_layer

__all__ = ["arguments", "draw"]


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """draw_layer with one hot and one empty expert, and per rank the LoRA factors A [R, in] and B [out, R].

    Meaningful: factors scaled by 1/√in and 1/√R, so that the branch is as large as the frozen path. Upstream's: N(0, 1).
    """
    s = setting.sizes
    if s.E % setting.world or s.K > s.E:
        raise SizesRefused(f"{setting.world} ranks must divide E={s.E} experts, and K={s.K} may not exceed E")
    tensors = draw_layer(setting, skewed=True)
    for name, inner, outer in (("gate", s.N, s.I), ("up", s.N, s.I), ("down", s.I, s.N)):
        down, up = setting.randn(s.R, inner), setting.randn(outer, s.R)
        if setting.distribution != "upstream":
            down, up = down / math.sqrt(inner), up / math.sqrt(s.R)
        tensors[f"lora_{name}_A"], tensors[f"lora_{name}_B"] = down, up
    return tensors
