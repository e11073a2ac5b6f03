"""The specification of a world: ranks, devices, jail and limits."""

from dataclasses import dataclass
from pathlib import Path

from sandbox.jail.choice import Jail
from sandbox.machine.devices.kind import DeviceKind
from sandbox.machine.placement import RankGpu


@dataclass(frozen=True)
class WorldSpec:
    """The sizes, devices and limits that a world starts with."""

    ranks: int
    kind: DeviceKind
    trusted: bool
    """Whether the referee decodes the replies of its ranks. True only for the oracle world."""
    jail: Jail
    readable: tuple[Path, ...] = ()
    """The folder of a user's own problem."""
    gpus: tuple[RankGpu, ...] = ()
    """By rank; empty for CPU ranks."""
    kernel: bool = True
    """Whether a kernel runs in it. The kernel then counts as the cause of the world's failures."""
