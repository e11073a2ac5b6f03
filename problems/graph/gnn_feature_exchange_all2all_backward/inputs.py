"""Inputs of problem 66: gradient rows for the peers, and where arriving rows are to be added."""

import torch

from problems.setting import RankSetting
from problems.shared.rotated import rotated, rows_per_peer


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """grad_output [R, h] N(0, 1), seed_inverse_ids [R] int64, counts_sent and counts_received [W] int64 (rotated).

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
        "counts_sent": rotated(rows[setting.rank], setting.rank),
        "counts_received": rotated(rows[:, setting.rank], setting.rank),
    }
