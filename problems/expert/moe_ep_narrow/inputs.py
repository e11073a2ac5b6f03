"""Inputs of problem 51: tokens, a router, and one gated MLP a rank."""

from typing import Any

import torch

from problems.setting import RankSetting
from problems.shared.inputs.moe_layer import draw_layer, layer_arguments


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """See draw_layer; every rank has an MLP of its own, replicas included, so that rows sent to the wrong replica show."""
    return draw_layer(setting, skewed=False)


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> tuple[Any, ...]:
    """solution(hidden_states, gate_weight, gate_bias, gate_proj, up_proj, down_proj, num_experts, top_k, group)"""
    return *layer_arguments(tensors), setting.sizes.E, setting.sizes.K, None
