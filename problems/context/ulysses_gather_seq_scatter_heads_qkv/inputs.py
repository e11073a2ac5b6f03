"""Inputs of problem 38: packed queries, keys and values of a slice of the sequence."""

from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused

_LAYOUTS = 5
_SPLIT_SHAPE = (1, 3)
_SEQUENCE_FIRST = 4


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """qkv_tensor [B, S, 3·P], N(0, 1), S positions on each rank.

    By turns, where the size `layouts` allows: as published; projections kept apart; one position trimmed; W - 1 trimmed and
    projections apart; sequence first.
    """
    s = setting.sizes
    if s.P % setting.world:
        raise SizesRefused(f"{setting.world} ranks do not divide the width P={s.P} of a projection")
    layout = setting.trial % min(s.layouts, _LAYOUTS)
    gathered = setting.world * s.S
    unpadded = {2: gathered - 1, 3: gathered - setting.world + 1}.get(layout, 0)
    seq_dim = 0 if layout == _SEQUENCE_FIRST else 1
    shape = (s.B, s.S, 3 * s.P) if seq_dim else (s.S, s.B, 3 * s.P)
    read = map(torch.tensor, (seq_dim, unpadded, layout not in _SPLIT_SHAPE))
    names = ("seq_dim", "unpadded_dim_size", "restore_shape")
    return {"qkv_tensor": setting.randn(*shape)} | dict(zip(names, read, strict=True))


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """No trimming is None."""
    return {"unpadded_dim_size": int(tensors["unpadded_dim_size"]) or None}
