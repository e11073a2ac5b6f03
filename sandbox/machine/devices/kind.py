"""The referee's side of a kind of device: all that differs between kinds, without torch.

`rank_module` names the ranks' side of the same kind.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sandbox.machine.placement import RankGpu
from sandbox.machine.scheduling import Share

HELD, SHORTEST = 64, 0.005
"""Most results of a batch that a rank holds and then copies together (sandbox.rank.output_copies). A world's first batch of more
calls than any before, up to this number, holds none and takes less time. A batch of so many calls and seconds is long enough,
because cores of a virtual machine change their speed every 10 to 100 ms."""


@dataclass(frozen=True)
class Pace:
    """The sizes of a round on one kind of device."""

    batch_s: float
    """Target length of a batch on the faster side, in seconds."""
    slower_s: float
    """Longest batch on the slower side, in seconds."""
    calls: int
    """Most calls of a batch."""
    slots: int
    """Iterations that an arena holds, if memory allows."""
    pairs: int
    """Most pairs of batches in a round. Their inputs are drawn together."""
    gated_pairs: int
    """Pairs of a gated round, which has its own inputs; 0 without a gate."""
    references: int
    """Reference worlds. They show how much worlds with identical code differ."""
    problems: int = 16
    """Problems that the oracle world or a reference world opens before a new one replaces it. After 60 to 70 problems, worlds
    differ from fresh ones: identical code was 0.71 to 0.86 times as fast."""

    def references_for(self, rounds: int | None) -> int:
        """Reference worlds of a run. A small fixed number of rounds needs fewer. rounds: None if adaptive."""
        return self.references if rounds is None else min(self.references, 1 + rounds // 4)


def calls_for(pace: Pace, baseline_s: float, contender_s: float, slots: int) -> int:
    """Calls of a batch, at least one.

    baseline_s, contender_s: seconds per call on either side. slots: of an arena.
    """
    fastest = max(min(baseline_s, contender_s), 1e-7)
    wanted = int(min(pace.batch_s, max(SHORTEST, HELD * fastest)) / fastest) + 1
    bearable = int(max(pace.slower_s, 2 * pace.batch_s) / max(baseline_s, contender_s, 1e-7))
    return max(1, min(wanted, bearable, pace.calls, slots // 2))


def pairs_for(pace: Pace, calls: int, slots: int) -> int:
    """Pairs of a round that fit into the slots of an arena."""
    return max(1, min(pace.pairs, slots // calls))


WARM_SECONDS, MOST_WARM = 0.3, 50
"""Seconds and most calls of the untimed calls in a new world."""
DISTINCT_SECONDS, MOST_DISTINCT = 2.5, 400
"""The most of both for calls with a new input each, if shapes vary between calls. A call of problem 32 took 3.5 ms at first and
1.1 ms after 400 calls on two H100, and 6 ms and 1.8 ms on CPU ranks."""


def warm_calls(call_s: float, distinct: bool = False) -> int:
    """Number of untimed calls in a new world, at least 1. call_s: seconds per call. distinct: with a new input each."""
    seconds, most = (DISTINCT_SECONDS, MOST_DISTINCT) if distinct else (WARM_SECONDS, MOST_WARM)
    return max(1, min(most, int(seconds / max(call_s, 1e-7))))


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
    has_gate: bool
    """Whether streams can wait behind the starting gate, which device time needs."""
    spins: bool
    """Whether the referee may spin while it waits for an answer, because ranks on such devices leave cores free."""
    sees_foreign_work: bool
    """Whether a rank can detect foreign work on its device."""
    out_of_reach: tuple[float, float, float]
    """Peaks that no rank of this kind reaches, for machines without calibration: (flops, local, link) of `Peaks`."""

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

    def used_by_others(self, gpus: Sequence[RankGpu]) -> bool:
        """Whether a program that is none of this process's descendants has a context on these GPUs."""
        return False

    def moves_bytes(self, gpus: Sequence[RankGpu]) -> bool:
        """Whether bytes move between these GPUs now."""
        return False

    def settle_threads(self, ranks: Iterable[int]) -> None:
        """Sets priorities of the threads of a world's ranks (process ids) before timing, if that helps."""

    def settle_helper(self, pid: int) -> None:
        """Gives the lowest priority to a session that a kernel's process has begun, if sessions have priorities."""

    def share_of_cores(self, pid: int) -> Share:
        """A process's share of the cores if a kernel could change it; else an empty share."""
        return Share()
