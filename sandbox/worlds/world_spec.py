"""The description of a world that is to be started."""

from dataclasses import dataclass
from pathlib import Path

from sandbox.jail.choice import Jail
from sandbox.machine.devices.kind import DeviceKind
from sandbox.machine.placement import RankGpu


@dataclass(frozen=True)
class WorldSpec:
    """Where the ranks of a world run, and what they may read."""

    ranks: int
    kind: DeviceKind
    trusted: bool
    """Whether its ranks answer with messages that are believed."""
    jail: Jail
    readable: tuple[Path, ...] = ()
    """Problem folders of the user's own."""
    gpus: tuple[RankGpu, ...] = ()
    """One a rank; empty for CPU ranks."""
    kernel: bool = True
    """Whether a kernel may run in it: what goes wrong in the world is then the kernel's fault."""
