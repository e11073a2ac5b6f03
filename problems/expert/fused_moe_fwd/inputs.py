"""Inputs of problem 31: tokens, a router, and one gated MLP a rank."""

import torch

from problems.setting import RankSetting, SizesRefused
from problems.shared.inputs.moe_layer import arguments, draw_layer

__all__ = ["arguments", "draw"]


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """See draw_layer; one expert is hot, one is never chosen."""
    s = setting.sizes
    if s.E % setting.world or s.K > s.E:
        raise SizesRefused(f"{setting.world} ranks must divide E={s.E} experts, and K={s.K} may not exceed E")
    return draw_layer(setting, skewed=True)
