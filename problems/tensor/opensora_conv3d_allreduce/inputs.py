"""Inputs of problem 76: this rank's channels of a video and the matching slice of a convolution's weight."""

from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused

READ_BY_ARGUMENTS = ("biased",)


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """input [B, Ci, time, height, width], weight [Co, Ci/groups, k, k, k], bias [Co], biased [1] int64 (0: no
    bias).

    Upstream: input and weight N(0, 1), the bias a ramp from -0.1 to 0.1. Otherwise the weight is scaled so
    that the sum over all ranks is of the order of 1, the bias is N(0, 1), and every fourth trial goes
    without.
    """
    s = setting.sizes
    if s.Ci < 1 or s.Ci % s.groups or s.Co % s.groups:
        raise SizesRefused(f"groups={s.groups} must divide the {s.Ci} input channels of a rank and Co={s.Co}")
    if min(s.out_time, s.out_height, s.out_width) < 1:
        raise SizesRefused(f"a kernel of {s.kernel} with dilation {s.dilation} is larger than the video")
    video = setting.randn(s.B, s.Ci, s.time, s.height, s.width)
    fan_in = s.Ci // s.groups * s.kernel**3
    weight = setting.randn(s.Co, s.Ci // s.groups, s.kernel, s.kernel, s.kernel)
    biased = 1
    if setting.distribution == "upstream":
        bias = torch.linspace(-0.1, 0.1, s.Co, dtype=setting.dtype, device=setting.device)
    else:
        weight = weight / (fan_in * setting.world) ** 0.5
        bias = setting.randn(s.Co, shared=True)
        biased = int(setting.trial % 4 != 0 or setting.upstream_arguments)
    flag = torch.tensor([biased], dtype=torch.int64, device=setting.device)
    return {"input": video, "weight": weight, "bias": bias, "biased": flag}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The bias is None in some iterations."""
    return {"bias": tensors["bias"] if tensors["biased"].item() else None}
