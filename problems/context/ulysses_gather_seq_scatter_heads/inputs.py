"""Inputs of problem 36: activations with a slice of the sequence and all heads."""

from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused

# (order of the dimensions, seq_dim, head_dim)
_ORDERS = (("BSAD", 1, 2), ("BSAD", 1, 2), ("BSAD", 1, 2), ("BASD", 2, 1), ("SABD", 0, 1))

READ_BY_ARGUMENTS = ("layout", "unpadded_dim_size")


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x [B, S, A, D], N(0, 1), S positions on each rank.

    By turns, where the size `layouts` allows: no trimming; one position too many; W - 1 too many; heads before sequence;
    sequence first.
    """
    s = setting.sizes
    if s.A % setting.world:
        raise SizesRefused(f"{setting.world} ranks do not divide A={s.A} heads")
    layout = setting.trial % min(s.layouts, len(_ORDERS))
    gathered = setting.world * s.S
    unpadded = {1: gathered - 1, 2: gathered - setting.world + 1}.get(layout, 0)
    x = setting.randn(*(getattr(s, name) for name in _ORDERS[layout][0]))
    return {"x": x, "layout": torch.tensor(layout), "unpadded_dim_size": torch.tensor(unpadded)}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> tuple[Any, ...]:
    """solution(x, seq_dim, head_dim, group, unpadded_dim_size)"""
    _, seq_dim, head_dim = _ORDERS[int(tensors["layout"])]
    return tensors["x"], seq_dim, head_dim, None, int(tensors["unpadded_dim_size"])


def capacity(setting: RankSetting) -> int:
    """As many elements as the argument, before trimming."""
    return setting.sizes.n * setting.dtype.itemsize
