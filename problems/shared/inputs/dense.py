"""Inputs of the plain collectives: values that show every lost bit, and a root that cannot be taken for
granted.
"""

from collections.abc import Callable

import torch

from problems.setting import RankSetting


def finite_bits(setting: RankSetting, *shape: int) -> torch.Tensor:
    """Random bit patterns of the run dtype without NaN and infinities, drawn from the rank's own generator.

    For problems that only move data: values of every magnitude, subnormals and both zeros included, so that
    nothing but a bit-for-bit copy is right.
    """
    count = 1
    for extent in shape:
        count *= extent
    words = -(-count * setting.dtype.itemsize // 4)
    drawn = setting.randint(-(2**31), 2**31, (words,), dtype=torch.int32)
    return drawn.view(setting.dtype)[:count].view(shape).nan_to_num(nan=1.0)


def root(setting: RankSetting) -> torch.Tensor:
    """The root of this iteration, [1] int64: another rank from trial to trial; upstream's is always rank 0."""
    chosen = 0 if setting.upstream_arguments else setting.trial % setting.world
    return torch.tensor([chosen], dtype=torch.int64, device=setting.device)


def ranked(setting: RankSetting, drawn: Callable[..., torch.Tensor], *shape: int) -> torch.Tensor:
    """drawn(setting, *shape), such as `RankSetting.randn`; upstream's own distribution is the constant rank + 1."""
    if setting.distribution == "upstream":
        return torch.full(shape, setting.rank + 1, dtype=setting.dtype, device=setting.device)
    return drawn(setting, *shape)
