"""Inputs of problem 55: a piece of the sequence per context rank, a share of the heads per tensor rank."""

import torch

from problems.setting import RankSetting, SizesRefused, grid
from problems.shared.ring import arguments, draw_mode, draw_projections

__all__ = ["arguments", "draw"]

READ_BY_ARGUMENTS = ("mode",)


def layout(world: int) -> dict[str, list[list[int]]]:
    """rank = c·tp + t with tp = min(2, W)."""
    return grid(world, min(2, world), "tp", "cp")


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """hidden_states [B, S, D] by context rank; w_qkv [3·H_l·d, D] and w_o [D, H_l·d] by tensor rank; the mode."""
    s = setting.sizes
    if s.H % s.tp:
        raise SizesRefused(f"{s.H} heads cannot be shared by {s.tp} tensor-parallel ranks")
    c, t = divmod(setting.rank, s.tp)
    hidden = setting.randn(s.cp, s.B, s.S, s.D, shared=True)[c].clone()
    w_qkv, w_o = draw_projections(setting, s.tp, t, s.H_l)
    return {"hidden_states": hidden, "w_qkv": w_qkv, "w_o": w_o, "mode": draw_mode(setting)}
