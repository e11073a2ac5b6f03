"""Inputs of problem 50: tokens, a router, and one gated MLP a rank."""

import torch

from problems.setting import RankSetting, SizesRefused
from problems.shared.inputs.moe_layer import arguments, draw_layer

__all__ = ["arguments", "draw"]


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """See draw_layer; one expert is hot and one is never chosen, where there are enough."""
    s = setting.sizes
    if s.K > s.E:
        raise SizesRefused(f"K={s.K} distinct experts are asked for, but {setting.world} ranks have E={s.E}")
    return draw_layer(setting, skewed=True)
