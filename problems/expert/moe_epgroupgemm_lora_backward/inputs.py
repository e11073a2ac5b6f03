"""Inputs of problem 30: the partial gradients of three LoRA factors."""

import torch

from problems.setting import RankSetting


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """grad_fc1_1_lora_A, grad_fc1_2_lora_A [R, N] and grad_fc2_lora_B [N, R]: N(0, 1), independent (also upstream's)."""
    s = setting.sizes
    return {
        "grad_fc1_1_lora_A": setting.randn(s.R, s.N),
        "grad_fc1_2_lora_A": setting.randn(s.R, s.N),
        "grad_fc2_lora_B": setting.randn(s.N, s.R),
    }
