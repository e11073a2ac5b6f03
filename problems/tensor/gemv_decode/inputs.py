"""Inputs of problem 46: the hidden states of a few tokens, and this rank's slice of the output projection."""

import torch

from problems.setting import RankSetting


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """hidden_states [t, H], the same everywhere; weight_shard [v, H] and bias_shard [v], own; all N(0, 1).

    Meaningful: weights divided by sqrt(H), so that the bias weighs as much as the product.
    """
    s = setting.sizes
    weight = setting.randn(s.v, s.H)
    if setting.distribution != "upstream":
        weight *= s.H**-0.5
    return {
        "hidden_states": setting.randn(s.t, s.H, shared=True),
        "weight_shard": weight,
        "bias_shard": setting.randn(s.v),
    }
