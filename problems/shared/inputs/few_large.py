"""A few large elements, so that no sample of a tensor gives the sum over all."""

import math

import torch

from problems.setting import RankSetting

LARGE = 16


def enlarge_few(tensor: torch.Tensor, setting: RankSetting) -> None:
    """Replaces LARGE elements of a tensor [...] ~ N(0, 1), at random places, by values that have half of the square sum.

    Own random numbers. In short ranges of exponents the values are smaller, so that 64 of them still fit.
    """
    size = min(math.sqrt(tensor.numel() / LARGE), torch.finfo(tensor.dtype).max / 128)
    values = setting.rand(LARGE, dtype=torch.float32) - 0.5
    values = (values + values.sign() / 2) * size * 1.3
    tensor.view(-1)[setting.randint(0, tensor.numel(), (LARGE,))] = values.to(tensor.dtype)
