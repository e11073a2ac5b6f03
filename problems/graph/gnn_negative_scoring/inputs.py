"""Inputs of problem 69: one positive and K negative scores per row, different numbers of rows per rank."""

from typing import Any

import torch

from problems.setting import Setting


def draw(setting: Setting) -> dict[str, torch.Tensor]:
    """pos [P_r] and neg [P_r, K], N(0, 1), with P_r = rows + (r mod 3).

    Except in upstream's distribution each row has its own difficulty (its negatives are shifted) and no
    negative is as good as tied with its row's positive: what comes too close after the logistic function is
    moved one unit up or down.
    """
    s = setting.sizes
    rows = s.rows + setting.rank % 3
    pos, neg = setting.randn(rows), setting.randn(rows, s.K)
    if setting.distribution == "upstream":
        return {"pos": pos, "neg": neg}
    pos = pos.clamp(-4, 4)
    neg = (neg + setting.randn(rows, 1)).clamp(-5, 5)
    close = (torch.sigmoid(neg.float()) - torch.sigmoid(pos.float())[:, None]).abs() < 2 * torch.finfo(
        neg.dtype
    ).eps
    up = torch.where(setting.rand(rows, s.K, dtype=torch.float32) < 0.5, 1.0, -1.0).to(neg.dtype)
    return {"pos": pos, "neg": torch.where(close, pos[:, None] + up, neg)}


def arguments(tensors: dict[str, torch.Tensor], setting: Setting) -> tuple[Any, ...]:
    """solution(local_pos_scores, local_neg_scores, group)"""
    return tensors["pos"], tensors["neg"], setting.groups["world"]
