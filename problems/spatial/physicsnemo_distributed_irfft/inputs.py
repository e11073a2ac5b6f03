"""Inputs of problem 60: rows of one half spectrum."""

from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x [B, C, H/W, Wd/2 + 1] complex64: this rank's rows.

    Upstream: the transform of a N(0, 1) field that is the same everywhere. Otherwise complex noise, as a
    network would put out, whose columns 0 and Wd/2 have no Hermitian symmetry, and one strong frequency in
    each image.
    """
    s = setting.sizes
    if s.H % setting.world or s.Wd % setting.world or s.Wd % 2:
        raise SizesRefused(f"H={s.H} and Wd={s.Wd} must divide by {setting.world} ranks, and Wd by 2")
    rows = s.H // setting.world
    if setting.distribution == "upstream":
        spectrum = torch.fft.rfft2(setting.randn(s.B, s.C, s.H, s.Wd, shared=True), norm="ortho")
        return {"x": spectrum[:, :, setting.rank * rows : (setting.rank + 1) * rows].contiguous()}
    mine = torch.view_as_complex(setting.randn(s.B, s.C, rows, s.m, 2))
    flat = mine.view(s.B * s.C, rows * s.m)
    peak = setting.randint(0, rows * s.m, (s.B * s.C, 1))
    return {"x": flat.scatter(1, peak, (flat.gather(1, peak) * 20)).view(mine.shape)}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The shape of the result, and the dimensions of the transform."""
    return {"s": (setting.sizes.H, setting.sizes.Wd), "dim": (-2, -1)}
