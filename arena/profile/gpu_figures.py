"""Computes the figures of GPU ranks from the driver's counters and all spans. Pure: no clock, no process."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

import msgspec

from arena.profile.rules import calls_of, waits_for
from problems.specification import Cost
from sandbox.machine.gpu_counters import GpuCounted
from sandbox.protocol.profile import WORK, Span, WorldProfile

MOST_NAME = 48
"""Most characters shown of a kernel's name; cuDNN's names have a hundred."""


class Least(msgspec.Struct, frozen=True):
    """The bytes that a rank must move at least in one call, and the bandwidth of its link."""

    local: float
    """Bytes read from its memory plus bytes written to it."""
    sent: float
    received: float
    link: float = 0.0
    """Bytes per second in one direction, measured on this machine; 0: never measured."""

    @classmethod
    def of(cls, cost: Cost, peaks: dict[str, float]) -> "Least":
        """peaks: from this machine's calibration; empty if there is none."""
        return cls(cost.local_bytes, cost.sent_bytes, cost.received_bytes, peaks.get("link", 0.0))


class GpuFigures(msgspec.Struct, frozen=True):
    """The figures of one rank on a GPU.

    `row_us` and `counted` come from calls in a row without a profiler, all others are medians over the profiled calls.
    """

    rank: int
    least: Least
    row_us: float | None = None
    """Microseconds per call of the row, measured outside the ranks; the same for all ranks."""
    counted: GpuCounted = GpuCounted()
    """Bytes are per call, shares are over the whole row."""
    unseen: str = ""
    """Why there are no spans of the GPU's work; if set, all figures below except `clock_us` are zero."""
    call_us: float = 0.0
    """Time of a single call, until the GPU has done all of its work."""
    busy_us: float = 0.0
    """Part of `call_us` in which the GPU worked."""
    kernels: float = 0.0
    kernel_us: float = 0.0
    """Mean time of a kernel that is not a collective."""
    syncs: float = 0.0
    """How often the host waited for the GPU."""
    after_sync_us: float = 0.0
    """Time in which the GPU was idle because the host had waited for it."""
    waits: float = 0.0
    """Number of collectives."""
    wait_us: float = 0.0
    late_us: float = 0.0
    """Part of `wait_us` before the last rank started the collective."""
    late_rank: int | None = None
    largest: str = ""
    largest_us: float = 0.0
    """Time of the kernel with the largest total, over all of its launches."""
    clock_us: float = 0.0
    stamps: dict[str, float] = {}
    """Microseconds between two stamps of a block ("0 to 1"), median over blocks and calls."""
    diagnosis: str = ""
    advice: str = ""
    """Empty if there is no usual remedy."""

    @property
    def idle_us(self) -> float:
        """Time of a call in which the GPU had nothing to do."""
        return max(0.0, self.call_us - self.busy_us)

    def rate(self, amount: float | None) -> float | None:
        """Converts bytes per call to bytes per second; None if either is unknown."""
        return amount / self.row_us * 1e6 if amount is not None and self.row_us else None

    @property
    def joules(self) -> float | None:
        """Energy that its GPU used per call of the row."""
        watts = self.counted.watts
        return watts * self.row_us / 1e6 if watts is not None and self.row_us is not None else None

    @property
    def dram_bytes(self) -> float | None:
        """Bytes per call to and from the GPU's memory: used share of the peak bandwidth, times the time."""
        counted = self.counted
        if counted.dram is None or counted.dram_peak is None or self.row_us is None:
            return None
        return counted.dram * counted.dram_peak * self.row_us / 1e6

    @property
    def link_peak(self) -> float | None:
        """Bytes per second in one direction: the measured value, else the nominal speed of its links."""
        return self.least.link or self.counted.link_peak


def gpu_figures(profile: WorldProfile, least: Least) -> list[GpuFigures]:
    """Returns the figures of every rank, without diagnoses (see arena/profile/gpu_rules.py)."""
    late = waits_for(profile.reports)
    found = []
    for at, report in enumerate(profile.reports):
        seen = GpuFigures(report.rank, least, unseen=report.unseen or "no call was seen", clock_us=report.clock_us)
        calls = calls_of(report)
        if calls and not report.unseen:
            seen = _seen(seen, calls, *late[at])
        found.append(_counted(seen, profile, at))
    return found


def _counted(found: GpuFigures, profile: WorldProfile, at: int) -> GpuFigures:
    outside = profile.outside
    if outside is None:
        return found
    counted = GpuCounted()
    if at < len(outside.gpus):
        counted = outside.gpus[at]
        sent, received = (
            None if total is None else round(total / outside.calls) for total in (counted.sent, counted.received)
        )
        counted = msgspec.structs.replace(counted, sent=sent, received=received)
    return msgspec.structs.replace(found, row_us=outside.seconds / outside.calls * 1e6, counted=counted)


def _seen(found: GpuFigures, calls: list[tuple[Span, list[Span]]], late_us: float, late_rank: int | None) -> GpuFigures:
    by_call = [_call_figures(call, inner) for call, inner in calls]
    by_name = [_us_by_name(inner) for _, inner in calls]
    names = sorted({name for each in by_name for name in each})
    totals = {name: median(each.get(name, 0.0) for each in by_name) for name in names}
    largest = max(totals, key=lambda name: totals[name], default="")
    return msgspec.structs.replace(
        found,
        unseen="",
        **{field: median(each[field] for each in by_call) for field in by_call[0]},
        late_us=late_us,
        late_rank=late_rank,
        largest=short_name(largest),
        largest_us=totals.get(largest, 0.0),
        stamps=_between_stamps(calls),
    )


def _between_stamps(calls: list[tuple[Span, list[Span]]]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for _, inner in calls:
        for span in inner:
            if span.kind == "stamp":
                found.setdefault(span.name, []).append(span.us)
    return {name: median(lengths) for name, lengths in found.items()}


_SLACK_US = 2.0
"""Assumed difference between the clocks of a host and its GPU."""


def _call_figures(call: Span, inner: Sequence[Span]) -> dict[str, float]:
    """Returns the figures of one call, keyed by the fields of `GpuFigures`."""
    work = [span for span in inner if span.kind in WORK]
    kernels = [span.us for span in work if span.kind == "kernel"]
    waits = [span.us for span in work if span.kind == "wait"]
    syncs = [span.start_us + span.us for span in inner if span.kind == "sync"]
    busy = busy_parts(work)
    after_sync = [
        start - end
        for (_, end), (start, _) in itertools.pairwise(busy)
        if any(end - _SLACK_US <= synced <= start + _SLACK_US for synced in syncs)
    ]
    return {
        "call_us": call.us,
        "busy_us": sum(end - start for start, end in busy),
        "kernels": len(kernels),
        "kernel_us": sum(kernels) / max(1, len(kernels)),
        "waits": len(waits),
        "wait_us": sum(waits),
        "syncs": len(syncs),
        "after_sync_us": sum(after_sync),
    }


def _us_by_name(inner: Sequence[Span]) -> dict[str, float]:
    """Sums the microseconds of a call's kernels by name."""
    found: defaultdict[str, float] = defaultdict(float)
    for span in inner:
        if span.kind == "kernel":
            found[span.name] += span.us
    return found


def busy_parts(work: Sequence[Span]) -> list[tuple[float, float]]:
    """Merges spans into the intervals in which one or more was running: (begin, end) in microseconds, in order."""
    parts: list[tuple[float, float]] = []
    for span in sorted(work, key=lambda span: span.start_us):
        end = span.start_us + span.us
        if parts and span.start_us <= parts[-1][1]:
            parts[-1] = (parts[-1][0], max(parts[-1][1], end))
        else:
            parts.append((span.start_us, end))
    return parts


def short_name(kernel: str) -> str:
    """Strips type, namespaces, template arguments and parameters from a kernel's name; cuts it to MOST_NAME."""
    bare = (
        kernel.replace("(anonymous namespace)::", "")
        .replace("<unnamed>::", "")
        .removeprefix("void ")
        .partition("(")[0]
        .partition("<")[0]
    )
    name = bare.rpartition("::")[2] or kernel
    return name if len(name) <= MOST_NAME else f"{name[: MOST_NAME - 1]}…"
