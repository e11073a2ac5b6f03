"""Inputs of problem 81: mask logits of tracked objects, several of them tracking the same thing."""

from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused


def _counts(setting: RankSetting) -> torch.Tensor:
    """Objects per rank, [W] int64, the same on all ranks."""
    n, world, trial = setting.sizes.n, setting.world, setting.trial
    if setting.distribution == "upstream":
        return 1 + (torch.arange(world, device=setting.device) + trial) % 3
    counts = setting.randint((n + 1) // 3, n + 1, (world,), shared=True)
    counts[0] = max(2, int(counts[0]))
    if world > 1 and trial % 4 == 2:
        counts[1 + trial % (world - 1)] = 0
    return counts


def _published(setting: RankSetting, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise below zero with diagonal stripes above it, and evenly spaced scores."""
    s, device = setting.sizes, setting.device
    masks = setting.randn(s.n, s.H, s.V) - 1
    y, x, i = (torch.arange(extent, device=device) for extent in (s.H, s.V, s.n))
    stripes = (y[:, None] + x + i[:, None, None] + setting.rank) % 5 == 0
    scores = torch.zeros(s.n, dtype=torch.float32, device=device)
    scores[:count] = torch.linspace(-5, 5, count, device=device)
    return masks + 4 * stripes.to(masks.dtype), scores.to(setting.dtype)


def _tracked(setting: RankSetting) -> tuple[torch.Tensor, torch.Tensor]:
    """Ellipses: every object is one of a few shared ones, slightly moved; its logit falls with the distance
    from the centre.
    """
    s, device = setting.sizes, setting.device
    wide = {"dtype": torch.float32}
    bases = max(2, setting.world * s.n // 4)
    centre = setting.rand(bases, 2, shared=True, **wide) * 0.6 + 0.2
    radius = setting.rand(bases, 2, shared=True, **wide) * 0.2 + 0.12
    base = setting.randint(0, bases, (s.n,))
    centre = centre[base] + setting.randn(s.n, 2, **wide) * 0.015
    radius = radius[base] * (1 + 0.08 * setting.randn(s.n, 2, **wide))
    y, x = ((torch.arange(extent, device=device) + 0.5) / extent for extent in (s.H, s.V))
    away_y = ((y - centre[:, :1]) / radius[:, :1]).square()
    away_x = ((x - centre[:, 1:]) / radius[:, 1:]).square()
    distance = away_y[:, :, None] + away_x[:, None, :]
    masks = (4 * (1 - distance)).clamp(min=-8) + 0.3 * setting.randn(s.n, s.H, s.V, **wide)
    if setting.trial % 3 == 0 and setting.rank == 0:
        masks[0] = -masks[0].abs()
    return masks.to(setting.dtype), setting.randn(s.n)


READ_BY_ARGUMENTS = ("counts",)


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """masks [n, H, V], scores [n] (the first counts[rank] are used), counts [W], occluded [W*n], reverse [] bool.

    Upstream never suppresses anything. Otherwise several objects share a place (IoU between 0.5 and 0.95),
    some are empty, a rank may have none, and both directions of `reverse` occur.
    """
    s = setting.sizes
    if s.n < (3 if setting.distribution == "upstream" else 2):
        raise SizesRefused(f"n={s.n}: take at least 2 objects per rank, 3 in the published setting")
    counts = _counts(setting)
    if setting.distribution == "upstream":
        masks, scores = _published(setting, int(counts[setting.rank]))
        occluded = torch.arange(setting.world * s.n, device=setting.device) % 5 - 1
        reverse = False
    else:
        masks, scores = _tracked(setting)
        occluded = setting.randint(-1, 7, (setting.world * s.n,), shared=True)
        reverse = setting.trial // 2 % 2 == 1
    return {
        "masks": masks,
        "scores": scores,
        "counts": counts,
        "occluded": occluded,
        "reverse": torch.tensor(reverse, device=setting.device),
    }


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The objects that there are, and a threshold: upstream's, or a ratio of no small whole numbers, on which no IoU lies."""
    counts = tensors["counts"].tolist()
    mine = counts[setting.rank]
    return {
        "low_res_masks_local": tensors["masks"][:mine],
        "obj_scores_local": tensors["scores"][:mine],
        "num_obj_per_gpu": counts,
        "last_occluded": tensors["occluded"][: sum(counts)],
        "iou_threshold": 0.7 if setting.distribution == "upstream" else 0.6999,
    }
