"""Inputs of problem 70: a jagged table of ids, feature by feature, on every rank."""

from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused

SHORTEST, LONGEST = 5, 20
"""Upstream's lengths, inclusive."""


def _splits(setting: RankSetting) -> list[int]:
    """Features per destination: 1 + d mod 3, times K; except upstream, rank 1 of three or more gives its own
    to rank 0.
    """
    splits = [setting.sizes.K * (1 + rank % 3) for rank in range(setting.world)]
    if not setting.upstream_arguments and setting.world > 2:
        splits[0], splits[1] = splits[0] + splits[1], 0
    return splits


def _strides(setting: RankSetting) -> list[int]:
    """Samples of each feature on this rank; equal unless variant is 3."""
    batch, rank = setting.sizes.batch, setting.rank
    if not setting.upstream_arguments:
        batch -= (rank % 3) * (batch // 4)
    if setting.sizes.variant != 3:
        return [batch] * setting.sizes.features
    return [max(1, batch - (rank + feature) % 4 * (batch // 5)) for feature in range(setting.sizes.features)]


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """lengths [sum of strides] int64, values [sum of lengths] int64, and weights (float32) in
    variant 2.

    Upstream: lengths uniform in 5..20, values uniform below 1000000. Otherwise lengths are a shuffle of an
    exponential distribution's quantiles (a fifth of them zero, mean `length`), and a value tells rank,
    feature and position beside 16 random bits, so that whatever is misplaced shows.
    """
    s = setting.sizes
    if s.variant not in (1, 2, 3) or (s.variant != 1 and setting.distribution == "upstream"):
        raise SizesRefused(f"variant={s.variant}: choose 1, 2 or 3 (1 in the published setting)")
    strides = torch.tensor(_strides(setting), device=setting.device)
    count = int(strides.sum())
    if setting.distribution == "upstream":
        lengths = setting.randint(SHORTEST, LONGEST + 1, (count,))
        values = setting.randint(0, 1_000_000, (count * LONGEST,))
        return {"lengths": lengths, "values": values[: int(lengths.sum())]}
    quantile = (torch.arange(count, dtype=torch.float64, device=setting.device) + 0.5) / count
    tail = -torch.log1p(-((quantile - 0.2) / 0.8).clamp(min=0)) * (s.length / 0.8)
    lengths = tail.ceil().long()[setting.permutation(count)]
    total = int(lengths.sum())
    of_sample = torch.repeat_interleave(torch.arange(len(strides), device=setting.device), strides)
    feature = torch.repeat_interleave(of_sample, lengths)
    position = torch.arange(total, device=setting.device)
    values = setting.randint(0, 1 << 16, (total,)) + (position << 16) + (feature << 44) + (setting.rank << 56)
    tensors = {"lengths": lengths, "values": values}
    if s.variant == 2:
        tensors["weights"] = setting.rand(total, dtype=torch.float32)
    return tensors


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """Splits and strides; strides of single features are in variant 3 alone."""
    strides, variant = _strides(setting), setting.sizes.variant
    return {
        "key_splits": _splits(setting),
        "batch_size": strides[0],
        "pg": setting.groups["world"],
        "stride_per_key": strides if variant == 3 else None,
        "stagger": 2 if variant == 2 and setting.world % 2 == 0 else 1,
    }


def capacity(setting: RankSetting) -> int:
    """Bytes of the largest share: lengths, ids and weights of a rank's features from all ranks; upstream at
    its longest.
    """
    s = setting.sizes
    samples = max(_splits(setting)) * setting.world * s.batch
    ids = LONGEST if setting.distribution == "upstream" else 1.2 * s.length + 1
    return int(samples * (8 + ids * (16 if s.variant == 2 else 8))) + 65536
