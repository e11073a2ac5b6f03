"""Inputs of problem 36: activations with a slice of the sequence and all heads."""

import torch

from problems.setting import RankSetting, SizesRefused

# (order of the dimensions, seq_dim, head_dim)
_ORDERS = (("BSAD", 1, 2), ("BSAD", 1, 2), ("BSAD", 1, 2), ("BASD", 2, 1), ("SABD", 0, 1))


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x [B, S, A, D], N(0, 1), S positions on each rank.

    By turns, where the size `layouts` allows: no trimming; one position too many; W - 1 too many; heads before sequence;
    sequence first.
    """
    s = setting.sizes
    if s.A % setting.world:
        raise SizesRefused(f"{setting.world} ranks do not divide A={s.A} heads")
    layout = setting.trial % min(s.layouts, len(_ORDERS))
    order, *dims = _ORDERS[layout]
    gathered = setting.world * s.S
    unpadded = {1: gathered - 1, 2: gathered - setting.world + 1}.get(layout, 0)
    x = setting.randn(*(getattr(s, name) for name in order))
    names = ("seq_dim", "head_dim", "unpadded_dim_size")
    return {"x": x} | dict(zip(names, map(torch.tensor, (*dims, unpadded)), strict=True))
