"""Distributed inverse real 2-D FFT: complete the half spectrum, transform rows, re-shard, transform columns."""

import torch
import torch.distributed as dist

from problems.shared.ulysses import reshard


@torch.no_grad()
def solution(
    x: torch.Tensor,
    s: tuple[int, int],
    dim: tuple[int, int],
    norm: str = "ortho",
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Complex x [.., H/W, n1//2 + 1], this rank's rows -> real [.., n0, n1/W], its columns.

    s: global lengths (n0, n1) along dim = (sharded axis, half axis). W must divide n1. The imaginary part of
    the result, which is there when columns 0 and n1/2 are not Hermitian, is dropped.
    """
    sharded, half = (axis % x.dim() for axis in dim)
    length = s[1]
    completed = torch.cat([x, _mirrored(x, sharded, half, length, group)], dim=half)
    rows = torch.fft.ifft(completed, n=length, dim=half, norm=norm)
    columns = torch.view_as_complex(reshard(torch.view_as_real(rows), half, sharded, group))
    return torch.fft.ifft(columns, n=s[0], dim=sharded, norm=norm).real.contiguous()


def _mirrored(x: torch.Tensor, sharded: int, half: int, length: int, group: dist.ProcessGroup | None) -> torch.Tensor:
    """This rank's rows of the columns that x leaves out: Y[k, j] = conj(Z[-k mod H, length - j])."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    everything = torch.empty(world, *x.shape, dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(torch.view_as_real(everything), torch.view_as_real(x.contiguous()), group=group)
    spectrum = torch.cat(everything.unbind(0), dim=sharded)
    count, height = x.shape[sharded], spectrum.shape[sharded]
    mine = torch.arange(rank * count, (rank + 1) * count, device=x.device)
    opposite = spectrum.index_select(sharded, -mine % height)
    missing = length - x.shape[half]
    return opposite.narrow(half, 1, missing).flip(half).conj()
