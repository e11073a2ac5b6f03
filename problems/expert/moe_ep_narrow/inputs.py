"""Inputs of problem 51: tokens, a router, and one gated MLP a rank."""

import torch

from problems.setting import RankSetting
from problems.shared.inputs.moe_layer import arguments, draw_layer

__all__ = ["arguments", "draw"]


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """See draw_layer; every rank has an MLP of its own, replicas included, so that rows sent to the wrong replica show."""
    return draw_layer(setting, skewed=False)
