"""Inputs of problem 21: three gradient shards of very different scales."""

import math
from typing import Any

import torch

from problems.setting import RankSetting
from problems.shared.inputs.dense import enlarge_few

LARGEST = 6


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """grad0..grad2 [M, N]: N(0, 1), each times its own 2^u with u uniform in [-6, 6] so that the norm cannot be guessed.

    A few elements of each, at random places, have half of its square sum, so that no sample gives the norm. In one call of four
    all are so small that the norm is below 1, and nothing is clipped.
    """
    m, n = setting.sizes.M, setting.sizes.N
    smaller = LARGEST + 1 + math.log2(6 * m * n * setting.world) / 2 if setting.trial % 4 == 3 else 0.0
    tensors = {}
    for index in range(3):
        gradient = setting.randn(m, n)
        if setting.distribution != "upstream":
            exponent = setting.rand(1, dtype=torch.float32) * 2 * LARGEST - LARGEST - smaller
            enlarge_few(gradient, setting)
            gradient = gradient * torch.exp2(exponent).to(setting.dtype)
        tensors[f"grad{index}"] = gradient
    return tensors


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """All gradients in one list."""
    return {"grad_tensors": [tensors[f"grad{index}"] for index in range(3)]}
