"""FFTs of a power of two of complex numbers, or of twice as many real ones, by a thread block in its shared memory.

    from sandbox.kit.blocks import shared_fft

    tables = shared_fft.tables(length, x.device)
    module = cuda.compile(shared_fft.SOURCE + "... fft_forward<4096, 4096>(tile, roots) ...")

Frequencies stay in the order in which the passes leave them, so that nothing is reordered between a transform and its inverse.
"""

import functools
from dataclasses import dataclass

import torch

from sandbox.kit.blocks import cuda_text

SOURCE = cuda_text("shared_fft")
PADDING = 16
"""After this number of elements, one element of the tile is left out, to avoid bank conflicts."""


@dataclass(frozen=True)
class Tables:
    """The tables that the functions of shared_fft.cu read.

    roots: float32 [M, 2], roots[j] = exp(-i pi j / M). pairs: int32 [M/2 + 1], the place of frequency k and, times 65536, that of
    (M - k) mod M, k = 0 .. M/2 in the order of the first places. turns: float32 [M/2 + 1, 2], roots[k] of each pair.
    """

    roots: torch.Tensor
    turns: torch.Tensor
    pairs: torch.Tensor


def elements(length: int) -> int:
    """Number of elements, of eight bytes each, in a tile for `length` numbers."""
    return length + length // PADDING


def frequencies(length: int) -> torch.Tensor:
    """The frequency at each place after the forward passes: int64 [length]; length is a power of two."""
    radix = min(length, 8)
    inner = frequencies(length // radix) if length > radix else torch.zeros(1, dtype=torch.int64)
    return (torch.arange(radix)[:, None] + radix * inner).flatten()


@functools.lru_cache(maxsize=16)
def tables(length: int, device: torch.device) -> Tables:
    """The tables of one length up to 32768, made once for a device."""
    order = frequencies(length)
    place = torch.empty_like(order)
    place[order] = torch.arange(length)
    angle = torch.arange(length, dtype=torch.float64) * (-torch.pi / length)
    roots = torch.stack((angle.cos(), angle.sin()), dim=1).float()
    mates = place[(length - order) % length]
    first = (torch.arange(length) <= mates).nonzero().flatten()
    pairs = (first + (mates[first] << 16)).int()
    return Tables(roots.to(device), roots[order[first]].contiguous().to(device), pairs.to(device))
