"""Distributed real 2-D FFT: transform the complete axis, turn the sharding round, transform the other."""

import torch
import torch.distributed as dist

from problems.shared.ulysses import reshard


@torch.no_grad()
def solution(
    x: torch.Tensor,
    s: tuple[int | None, int | None],
    dim: tuple[int, int],
    norm: str = "ortho",
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Real x [B, H, Wd/W], this rank's columns -> complex [B, n0/W, n1//2 + 1], its rows of the spectrum.

    s: global lengths (n0, n1) along dim = (complete axis, sharded axis); shorter fields are padded with
    zeros, longer ones cropped, None keeps a length. W must divide n0.
    """
    whole, sharded = (axis % x.dim() for axis in dim)
    half_done = torch.fft.fft(x, n=s[0], dim=whole, norm=norm)
    rows = torch.view_as_complex(reshard(torch.view_as_real(half_done), whole, sharded, group))
    length = s[1] if s[1] is not None else rows.shape[sharded]
    spectrum = torch.fft.fft(rows, n=length, dim=sharded, norm=norm)
    return spectrum.narrow(sharded, 0, length // 2 + 1).contiguous()
