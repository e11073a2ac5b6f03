"""Dense inputs: values that show every lost bit or element, and a root that cannot be taken for granted."""

import math
from collections.abc import Callable

import torch

from problems.setting import RankSetting, SizesRefused

LARGE = 16


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
    """The root of this iteration, [] int64: another rank from trial to trial; upstream's is always rank 0."""
    chosen = 0 if setting.upstream_arguments else setting.trial % setting.world
    return torch.tensor(chosen, dtype=torch.int64, device=setting.device)


def ranked(setting: RankSetting, drawn: Callable[..., torch.Tensor], *shape: int) -> torch.Tensor:
    """drawn(setting, *shape), such as `RankSetting.randn`; upstream's own distribution is the constant rank + 1."""
    if setting.distribution == "upstream":
        return torch.full(shape, setting.rank + 1, dtype=setting.dtype, device=setting.device)
    return drawn(setting, *shape)


def enlarge_few(tensor: torch.Tensor, setting: RankSetting) -> None:
    """Replaces LARGE elements of a tensor [...] ~ N(0, 1), at random places, by values that have half of the square sum.

    Own random numbers. In short ranges of exponents the values are smaller, so that 64 of them still fit.
    """
    size = min(math.sqrt(tensor.numel() / LARGE), torch.finfo(tensor.dtype).max / 128)
    values = setting.rand(LARGE, dtype=torch.float32) - 0.5
    values = (values + values.sign() / 2) * size * 1.3
    tensor.view(-1)[setting.randint(0, tensor.numel(), (LARGE,))] = values.to(tensor.dtype)


def draw_gathered(setting: RankSetting) -> dict[str, torch.Tensor]:
    """Factors of a product whose left one is spread over the ranks by columns, both N(0, 1), as upstream draws them.

    A_local [M, K/W] and B [K, N], every rank with a B of its own.
    """
    s = setting.sizes
    if s.K % setting.world:
        raise SizesRefused(f"K={s.K} does not divide by {setting.world} ranks: choose a multiple of {setting.world}")
    return {"A_local": setting.randn(s.M, s.K // setting.world), "B": setting.randn(s.K, s.N)}
