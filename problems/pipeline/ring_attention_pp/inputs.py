"""Inputs of problem 56: a piece of the sequence for the first stage, and every stage's own weights."""

import torch

from problems.setting import RankSetting, grid
from problems.shared.ring import arguments, draw_mode, draw_projections

__all__ = ["arguments", "draw"]

READ_BY_ARGUMENTS = ("mode",)


def layout(world: int) -> dict[str, list[list[int]]]:
    """rank = p·cp + c with pp = min(2, W) stages."""
    return grid(world, world // min(2, world), "cp", "pp")


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """hidden_states [B, S, D]; w_qkv [3·H·d, D] and w_o [D, H·d] by stage; the mode.

    Upstream gives later stages the first stage's input too; here they get noise, because only its shape may matter.
    """
    s = setting.sizes
    stage, c = divmod(setting.rank, s.cp)
    hidden = setting.randn(s.cp, s.B, s.S, s.D, shared=True)[c].clone()
    if stage > 0 and setting.distribution != "upstream":
        hidden = setting.randn(s.B, s.S, s.D)
    w_qkv, w_o = draw_projections(setting, s.pp, stage, s.H)
    return {"hidden_states": hidden, "w_qkv": w_qkv, "w_o": w_o, "mode": draw_mode(setting)}
