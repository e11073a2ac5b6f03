"""The argument of inputs.py's functions: sizes, rank and world, dtype and device, random number generators."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist


class SizesRefused(ValueError):
    """Raised by inputs.py when sizes, world and dtype do not fit together; a usage error, never a verdict."""


@dataclass
class RankSetting:
    """One rank's sizes, dtype, device and random number generators.

    Used to draw inputs (trusted ranks only; the generators are set) and to assemble arguments (all ranks; they are
    None).
    """

    rank: int
    world: int
    sizes: SimpleNamespace
    """Size parameters and derived sizes as attributes: sizes.M, sizes.N..."""
    dtype: torch.dtype
    """The run dtype; float64 while the oracle runs."""
    device: torch.device
    distribution: str = "meaningful"
    """ "meaningful" (tiny, production) or "upstream" (paper: exactly upstream's distribution)."""
    beside_upstream: bool = False
    """Whether this meaningful iteration is one of a run whose others are upstream's. Until GO it must look like these: the
    same shapes, and the same values of all tensors in READ_BY_ARGUMENTS."""
    groups: dict[str, dist.ProcessGroup | None] = field(default_factory=dict)
    """This rank's process group per name of `layout(world)`, plus "world"."""
    trial: int = 0
    """A secret number per iteration, for scalars that upstream varies by trial (step = 1 + trial % 7)."""
    own: torch.Generator | None = None
    """Generator of this rank's own random numbers."""
    shared: torch.Generator | None = None
    """Generator with the same numbers on every rank: all ranks must draw from it in the same order and amount."""

    @property
    def upstream_arguments(self) -> bool:
        """Whether shapes and the tensors in READ_BY_ARGUMENTS must be upstream's."""
        return self.beside_upstream or self.distribution == "upstream"

    def randn(self, *shape: int, shared: bool = False, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Standard-normal tensor of the run dtype on the device. CPUs round 16 bits from 32, as GPUs do: 0.6 times the time."""
        generator, wanted = self.shared if shared else self.own, dtype or self.dtype
        wide = torch.float32 if self.device.type == "cpu" and wanted.itemsize == 2 else wanted
        return torch.randn(*shape, generator=generator, dtype=wide, device=self.device).to(wanted)

    def rand(self, *shape: int, shared: bool = False, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Uniform [0, 1) tensor of the run dtype on the device."""
        generator = self.shared if shared else self.own
        return torch.rand(*shape, generator=generator, dtype=dtype or self.dtype, device=self.device)

    def randint(
        self, low: int, high: int, shape: tuple[int, ...], shared: bool = False, dtype: torch.dtype = torch.int64
    ) -> torch.Tensor:
        """Uniform integers in [low, high) on the device."""
        generator = self.shared if shared else self.own
        return torch.randint(low, high, shape, generator=generator, dtype=dtype, device=self.device)

    def permutation(self, n: int, shared: bool = False) -> torch.Tensor:
        """A random permutation of 0..n-1 (int64) on the device."""
        generator = self.shared if shared else self.own
        return torch.randperm(n, generator=generator, device=self.device)

    def replace(self, **changes: Any) -> "RankSetting":
        """A copy with some fields changed."""
        return RankSetting(**{**self.__dict__, **changes})


def grid(world: int, width: int, inner: str, outer: str) -> dict[str, list[list[int]]]:
    """A `layout` of two kinds of groups: rows of `width` consecutive ranks, and columns of ranks that are `width` apart."""
    rows = [list(range(first, first + width)) for first in range(0, world, width)]
    return {inner: rows, outer: [list(range(first, world, width)) for first in range(width)]}
