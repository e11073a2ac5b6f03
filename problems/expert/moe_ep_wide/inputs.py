"""Inputs of problem 50: tokens, a router, and one gated MLP a rank."""

from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused
from problems.shared.inputs.moe_layer import draw_layer, layer_arguments


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """See draw_layer; one expert is hot and one is never chosen, where there are enough."""
    s = setting.sizes
    if s.K > s.E:
        raise SizesRefused(f"K={s.K} distinct experts are asked for, but {setting.world} ranks have E={s.E}")
    return draw_layer(setting, skewed=True)


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> tuple[Any, ...]:
    """solution(hidden_states, gate_weight, gate_bias, gate_proj, up_proj, down_proj, num_experts, top_k, group)"""
    return *layer_arguments(tensors), setting.sizes.E, setting.sizes.K, None
