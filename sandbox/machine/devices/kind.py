"""The referee's side of a kind of device: all that differs between kinds, without torch.

`rank_module` names the ranks' side of the same kind.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from sandbox.machine.devices.pace import Pace
from sandbox.machine.placement import RankGpu
from sandbox.machine.scheduling import Share


class Throughput(msgspec.Struct, frozen=True):
    """Peaks of a rank: floating-point operations per second, bytes per second of its memory and of its link."""

    flops: float
    local: float
    link: float


class DeviceKind:
    """Base of the kinds of device. Sizes are in bytes, times in seconds."""

    name: str
    """The value of `--device`."""
    rank_module: str
    """The module of the ranks' side. Its `device(rank)` returns a sandbox.rank.devices.device.Device."""
    default_preset: str
    on_gpus: bool
    """Whether each rank needs a GPU."""
    ranks_name: str
    """The name of its ranks in sentences."""
    backend: str
    """The name of the library of collectives."""
    kit_language: str
    """The language of compiled kernels: the prompt template `kit_<language>` describes it."""
    has_reference_forms: bool
    """Whether there are baseline variants (sandbox/baseline_variants)."""

    # --- batches ---------------------------------------------------------------------------------------------
    arena_bytes: tuple[int, ...]
    """Limits for all slots of one rank, if arenas are sealed: the largest with which all references fit is taken."""
    unsealed_arena_bytes: int
    """The same for unsealed arenas, which every batch copies."""

    # --- timing ----------------------------------------------------------------------------------------------
    pace: Pace
    """Lengths of batches, and their number per round."""
    has_gate: bool
    """Whether streams can wait behind the starting gate, which device time needs."""
    spins: bool
    """Whether the referee may spin while it waits for an answer, because ranks on such devices leave cores free."""
    sees_foreign_work: bool
    """Whether a rank can detect foreign work on its device."""
    out_of_reach: Throughput
    """Peaks that no device of this kind reaches, for machines without calibration."""

    # --- worlds ----------------------------------------------------------------------------------------------
    outlives_kernels: bool
    """Whether a killed kernel can leave the device occupied or faulty, so that each kill is followed by a check."""
    host_bytes: int
    """Host memory that a rank needs for the device alone."""

    def gpus(self, world: int) -> tuple[RankGpu, ...]:
        """The GPU of each rank; empty for CPU ranks."""
        return ()

    def lease_names(self, world: int) -> list[str]:
        """The devices that a world of this size occupies while it is timed, for the lease."""
        raise NotImplementedError

    def environment(self, gpus: Sequence[RankGpu]) -> dict[str, str]:
        """Environment variables that restrict a world to these GPUs."""
        return {}

    def device_files(self, gpus: Sequence[RankGpu]) -> tuple[str, ...]:
        """Device files that a world needs."""
        return ()

    def gpu_fault(self, gpus: Sequence[RankGpu], killed: Collection[int]) -> str:
        """The fault that prevents the next run on these GPUs, in one line; else empty. killed: process ids of the ranks."""
        return ""

    def settle_threads(self, ranks: Iterable[int]) -> None:
        """Sets priorities of the threads of a world's ranks (process ids) before timing, if that helps."""

    def settle_helper(self, pid: int) -> None:
        """Gives the lowest priority to a session that a kernel's process has begun, if sessions have priorities."""

    def share_of_cores(self, pid: int) -> Share:
        """A process's share of the cores if a kernel could change it; else an empty share."""
        return Share()
