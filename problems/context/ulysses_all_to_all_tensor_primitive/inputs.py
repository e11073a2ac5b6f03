"""Inputs of problem 33: a tensor and two of its dimensions."""

import torch

from problems.setting import RankSetting, SizesRefused
from problems.shared.inputs.dense import finite_bits

# (shape, scatter_dim, gather_dim): the scattered dimension always has M elements, the others N together.
LAYOUTS: tuple[tuple[tuple[str, ...], int, int], ...] = (
    (("M", "N"), 0, 1),
    (("N", "M"), 1, 0),
    (("4", "M", "N/4"), 1, 2),
    (("N/4", "4", "M"), 2, 1),
    (("M", "N"), 0, 0),
    (("4", "M", "N/4"), -2, 0),
)


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x of M·N elements, and two of its dimensions.

    Meaningful: any finite values, and as many of LAYOUTS in turn as the size `layouts` says.
    """
    s = setting.sizes
    if s.M % setting.world or s.N % 4:
        raise SizesRefused(f"{setting.world} ranks must divide M={s.M}, and N={s.N} must be a multiple of 4")
    layout, scatter_dim, gather_dim = LAYOUTS[setting.trial % min(s.layouts, len(LAYOUTS))]
    extents = {"M": s.M, "N": s.N, "4": 4, "N/4": s.N // 4}
    shape = tuple(extents[name] for name in layout)
    x = setting.randn(*shape) if setting.distribution == "upstream" else finite_bits(setting, *shape)
    return {"x": x, "scatter_dim": torch.tensor(scatter_dim), "gather_dim": torch.tensor(gather_dim)}
