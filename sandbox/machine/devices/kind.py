"""One kind of device as the referee's side sees it: all that differs between kinds, without torch.

The ranks' side of the same kind is the module that `rank_module` names.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import msgspec

from sandbox.machine.devices.pace import Pace
from sandbox.machine.placement import RankGpu


class Throughput(msgspec.Struct, frozen=True):
    """What a rank can do at the most: floating-point operations a second, bytes a second of its memory and of its link."""

    flops: float
    local: float
    link: float


class DeviceKind(Protocol):
    """A kind of device. Sizes are in bytes, times in seconds."""

    name: str
    """As `--device` takes it."""
    rank_module: str
    """The module of the ranks' side; it has `device(rank)`, which makes a sandbox.rank.devices.device.Device."""
    default_preset: str
    on_gpus: bool
    """Whether each rank has a GPU: then there are no more ranks than GPUs."""
    ranks_name: str
    """Its ranks in a word or two, for sentences."""
    backend: str
    """The library of the collectives, as its users write it."""
    kit_language: str
    """What kernels are compiled from beside Python: the template `kit_<language>` tells models of it."""
    has_reference_forms: bool
    """Whether the baseline can run in other forms, too (sandbox/baseline_variants)."""
    loop_input_bytes: int
    """Inputs of a plain loop on one rank, at the most."""

    # --- batches ---------------------------------------------------------------------------------------------
    arena_bytes: int
    """All input and output slots of one rank together, where arenas are sealed."""
    unsealed_arena_bytes: int
    """The same where they are not, and every batch copies them."""

    # --- timing ----------------------------------------------------------------------------------------------
    pace: Pace
    """How long batches are, and how many there are in a round."""
    has_gate: bool
    """Whether streams can wait behind the starting gate: only then is there a device time."""
    sees_foreign_work: bool
    """Whether a rank can tell that other work has its device."""
    out_of_reach: Throughput
    """What no device of this kind reaches, for machines that were never calibrated."""

    # --- worlds ----------------------------------------------------------------------------------------------
    outlives_kernels: bool
    """Whether a killed kernel can leave the device occupied or unsound, so that it is examined after each kill."""
    host_bytes: int
    """Host memory that a rank needs for the device alone, whatever the kernel does."""

    def gpus(self, world: int) -> tuple[RankGpu, ...]:
        """The GPU of each rank; empty for ranks that have none."""

    def lease_names(self, world: int) -> list[str]:
        """Names of what a world of this size occupies while it is timed: no two arenas time on the same at once."""

    def environment(self, gpus: Sequence[RankGpu]) -> dict[str, str]:
        """Variables with which a world's processes see these GPUs alone."""

    def device_files(self, gpus: Sequence[RankGpu]) -> tuple[str, ...]:
        """Files of /dev that a world needs."""

    def gpu_fault(self, gpus: Sequence[RankGpu], killed: Collection[int]) -> str:
        """What keeps the next run from these GPUs, in a line; empty when nothing does. killed: process ids of the ranks."""

    def settle_threads(self, ranks: Iterable[int]) -> None:
        """Arranges the threads of a world's ranks (process ids) before they are timed."""
