"""Inputs of problem 66: gradient rows for the peers, and where arriving rows are to be added."""

from typing import Any

import torch

from problems.setting import RankSetting
from problems.shared.rotated import rotated, rows_per_peer

READ_BY_ARGUMENTS = ("leaving", "arriving")


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """grad_output [R, h] N(0, 1), seed_inverse_ids [R] int64, leaving and arriving [W] int64 (rotated).

    Upstream: uniform ids and equal counts. Otherwise one node receives about a tenth to a quarter of all
    rows, most receive none, and counts are skewed, some of them zero.
    """
    s = setting.sizes
    gradient = setting.randn(s.R, s.h)
    if setting.distribution == "upstream":
        ids = setting.randint(0, s.seed_size, (s.R,))
    else:
        hot_first = (setting.rand(s.R, dtype=torch.float64) ** 4 * s.seed_size).to(torch.int64)
        ids = setting.permutation(s.seed_size)[hot_first]
    rows = rows_per_peer(setting)
    return {
        "grad_output": gradient,
        "seed_inverse_ids": ids,
        "leaving": rotated(rows[setting.rank], setting.rank),
        "arriving": rotated(rows[:, setting.rank], setting.rank),
    }


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> tuple[Any, ...]:
    """solution(grad_output, seed_inverse_ids, seed_size, counts_sent, counts_received, group)"""
    return (
        tensors["grad_output"],
        tensors["seed_inverse_ids"],
        int(setting.sizes.seed_size),
        tensors["leaving"].tolist(),
        tensors["arriving"].tolist(),
        None,
    )
