"""Inputs of problem 69: one positive and K negative scores per row, different numbers of rows per rank."""

import torch

from problems.setting import RankSetting


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """local_pos_scores [P_r] and local_neg_scores [P_r, K], N(0, 1). Upstream: P_r = rows + (r mod 3).

    Otherwise P_r is drawn for each rank and iteration, from rows to rows + rows/32, at least to rows + 2. Each row has its own
    difficulty (its negatives are shifted), one negative a row is hardly better or worse than its positive, and none is as good
    as tied with it: what comes too close after the logistic function is moved one unit up or down. In short
    dtypes hardly is a little more than the rounding of the logistic function, in float32 some of its roundings: whoever sends
    scores of fewer bits finds other places.
    """
    s = setting.sizes
    if setting.distribution == "upstream":
        rows = s.rows + setting.rank % 3
    else:
        rows = s.rows + int(setting.randint(0, max(2, s.rows // 32) + 1, (1,)))
    pos, neg = setting.randn(rows), setting.randn(rows, s.K)
    if setting.distribution == "upstream":
        return {"local_pos_scores": pos, "local_neg_scores": neg}
    pos = pos.clamp(-4, 4)
    neg = (neg + setting.randn(rows, 1)).clamp(-5, 5)
    short = setting.dtype != torch.float32
    eps = torch.finfo(setting.dtype).eps
    positive = torch.sigmoid(pos.float())[:, None]
    close = (torch.sigmoid(neg.float()) - positive).abs() < (0.6 if short else 2) * eps
    up = torch.where(setting.rand(rows, s.K, dtype=torch.float32) < 0.5, 1.0, -1.0)
    neg = torch.where(close, pos[:, None] + up.to(neg.dtype), neg)
    near = (0.65 if short else 8) * eps / (positive * (1 - positive))
    neighbour = pos.float()[:, None] + near * up[:, :1]
    chosen = setting.randint(0, s.K, (rows, 1))
    return {"local_pos_scores": pos, "local_neg_scores": neg.scatter(1, chosen, neighbour.to(neg.dtype))}
