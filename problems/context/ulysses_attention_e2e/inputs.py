"""Inputs of problem 39: hidden states and two projections."""

import math

import torch

from problems.setting import RankSetting, SizesRefused


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """hidden_states [B, S, H], w_qkv [3·H, H], w_o [H, H].

    Meaningful: weights of variance 1/H, the same on all ranks. Upstream's: N(0, 1), other weights on every rank.
    """
    s = setting.sizes
    if s.A % setting.world:
        raise SizesRefused(f"{setting.world} ranks do not divide A={s.A} heads")
    upstream = setting.distribution == "upstream"
    scale = 1.0 if upstream else 1 / math.sqrt(s.H)
    return {
        "hidden_states": setting.randn(s.B, s.S, s.H),
        "w_qkv": setting.randn(3 * s.H, s.H, shared=not upstream) * scale,
        "w_o": setting.randn(s.H, s.H, shared=not upstream) * scale,
    }
