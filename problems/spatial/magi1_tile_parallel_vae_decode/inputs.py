"""Inputs of problem 78: one latent video per rank, and how it is cut into tiles."""

from typing import Any

import torch
import torch.nn.functional as F

from problems.setting import RankSetting

SPATIAL_OVERLAP = 0.25


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """z [B, C, T, H, Wd] bfloat16, other values on each rank.

    Upstream: N(0, 1). Otherwise noise on a grid half as fine in space, interpolated, so that it is smooth and
    seams show.
    """
    s = setting.sizes
    if setting.distribution == "upstream":
        return {"z": setting.randn(s.B, s.C, s.T, s.H, s.Wd, dtype=torch.bfloat16)}
    coarse = setting.randn(s.B, s.C, s.T, -(-s.H // 2), -(-s.Wd // 2), dtype=torch.float32)
    smooth = F.interpolate(coarse, size=(s.T, s.H, s.Wd), mode="trilinear", align_corners=False)
    return {"z": (1.5 * smooth).to(torch.bfloat16)}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """Tiles overlap in time, except upstream's."""
    return {"temporal_tile_overlap_factor": 0.0 if setting.distribution == "upstream" else 0.25}
