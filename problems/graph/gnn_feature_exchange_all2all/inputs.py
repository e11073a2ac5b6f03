"""Inputs of problem 65: a feature table, the rows to fetch from it, and how many of them each peer asked for."""

import torch

from problems.setting import RankSetting
from problems.shared.rotated import rotated, rows_per_peer


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """local_features [s, h] N(0, 1), seed_inverse_ids [R] int64, counts_sent and counts_received [W] int64 (rotated).

    Upstream: uniform ids and equal counts. Otherwise ids favour few hot rows and counts are skewed, some of
    them zero.
    """
    s = setting.sizes
    features = setting.randn(s.s, s.h)
    if setting.distribution == "upstream":
        ids = setting.randint(0, s.s, (s.R,))
    else:
        ids = (setting.rand(s.R, dtype=torch.float64) ** 3 * s.s).to(torch.int64)
    rows = rows_per_peer(setting)
    return {
        "local_features": features,
        "seed_inverse_ids": ids,
        "counts_sent": rotated(rows[:, setting.rank], setting.rank),
        "counts_received": rotated(rows[setting.rank], setting.rank),
    }
