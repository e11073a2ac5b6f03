"""Inputs of problem 72: two gates and a value, sharded in zigzag order, and long filters that decay."""

import torch

from problems.setting import RankSetting, SizesRefused

LARGE_TAPS = 4


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x1_seq, x2_seq, v_seq [B, D, S] N(0, 1); filters h [G, taps] and conv_bias [D], the same on all ranks.

    Upstream fills filters and bias with running numbers (rounded to bfloat16) divided by T and D. Otherwise
    filters are noise under an exponential envelope, exp(-t / tau) / sqrt(tau), and the bias is N(0, 1). A group's tau is drawn
    between 16 and a quarter of the taps or of the sequence, in the logarithm. Each group also has a few large taps at random
    places. So outputs are of order one, and every tap counts.
    """
    s, device = setting.sizes, setting.device
    if s.G % setting.world or s.S % 2:
        raise SizesRefused(f"W={setting.world} must divide G={s.G}, and S={s.S} must be even")
    tensors = {name: setting.randn(s.B, s.D, s.S) for name in ("x1_seq", "x2_seq", "v_seq")}
    if setting.distribution == "upstream":
        count = torch.arange(s.G * s.T, dtype=torch.float32, device=device).to(torch.bfloat16) / s.T
        channel = torch.arange(s.D, dtype=torch.float32, device=device).to(torch.bfloat16) / s.D
        return tensors | {"h": count.to(setting.dtype).view(s.G, s.T), "conv_bias": channel.to(setting.dtype)}
    taps = min(s.T, s.L)
    longest = max(2.0, taps / 4)
    exponent = setting.rand(s.G, 1, shared=True, dtype=torch.float32)
    tau = min(16.0, longest / 2) ** (1 - exponent) * longest**exponent
    envelope = torch.exp(-torch.arange(taps, device=device) / tau) / tau.sqrt()
    h = setting.randn(s.G, taps, shared=True, dtype=torch.float32) * envelope
    places = setting.randint(0, taps, (s.G, LARGE_TAPS), shared=True)
    h.scatter_add_(1, places, setting.randn(s.G, LARGE_TAPS, shared=True, dtype=torch.float32) / 2)
    return tensors | {"h": h.to(setting.dtype), "conv_bias": setting.randn(s.D, shared=True)}
