"""The figures of ranks on GPUs: from the driver's counters and the spans of all ranks. Pure: no clock, no process."""

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
"""Characters of a kernel's name: cuDNN's have a hundred."""


class Least(msgspec.Struct, frozen=True):
    """What one call must move on a rank at the least, in bytes, and what its ways can carry, in bytes a second."""

    local: float
    """Read from its memory plus written to it."""
    sent: float
    received: float
    link: float = 0.0
    """Measured on this machine, in one direction; 0: never measured."""

    @classmethod
    def of(cls, cost: Cost, peaks: dict[str, float]) -> "Least":
        """peaks: of this machine's calibration; empty where there is none."""
        return cls(cost.local_bytes, cost.sent_bytes, cost.received_bytes, peaks.get("link", 0.0))


class GpuFigures(msgspec.Struct, frozen=True):
    """One rank on a GPU. Medians over the calls that were looked at, except for what was counted over a row of calls."""

    rank: int
    least: Least
    row_us: float | None = None
    """Microseconds a call when they follow each other, by the clock outside; the same for all ranks."""
    counted: GpuCounted = GpuCounted()
    """Per call: bytes; over the row: shares."""
    unseen: str = ""
    """Why there are no spans of the GPU's work; then all that follows is zero."""
    call_us: float = 0.0
    """A single call, until the GPU has done all of it."""
    busy_us: float = 0.0
    """Of that, in which the GPU did something."""
    kernels: float = 0.0
    kernel_us: float = 0.0
    """Mean length of a kernel that is no collective."""
    syncs: float = 0.0
    """How often the host waited for the GPU."""
    after_sync_us: float = 0.0
    """In which the GPU had nothing to do because the host had waited for it."""
    waits: float = 0.0
    """Collectives."""
    wait_us: float = 0.0
    late_us: float = 0.0
    """Of that, until the last rank's collective had begun."""
    late_rank: int | None = None
    largest: str = ""
    largest_us: float = 0.0
    """The kernel that takes longest, all of its launches together."""
    clock_us: float = 0.0
    stamps: dict[str, float] = {}
    """Between two stamps of a block ("0 to 1"): microseconds, the median over blocks and calls."""
    diagnosis: str = ""
    advice: str = ""
    """Empty where there is no usual remedy."""

    @property
    def idle_us(self) -> float:
        """In which the GPU had nothing to do."""
        return max(0.0, self.call_us - self.busy_us)

    def rate(self, amount: float | None) -> float | None:
        """Bytes a second of what was moved in a call."""
        return amount / self.row_us * 1e6 if amount is not None and self.row_us else None

    @property
    def joules(self) -> float | None:
        """Energy of its GPU for a call of the row."""
        watts = self.counted.watts
        return watts * self.row_us / 1e6 if watts is not None and self.row_us is not None else None

    @property
    def dram_bytes(self) -> float | None:
        """Through the GPU's memory in a call: the share of its bandwidth, over the time."""
        counted = self.counted
        if counted.dram is None or counted.dram_peak is None or self.row_us is None:
            return None
        return counted.dram * counted.dram_peak * self.row_us / 1e6

    @property
    def link_peak(self) -> float | None:
        """Bytes a second in one direction: as measured, else by the speed of its links."""
        return self.least.link or self.counted.link_peak


def gpu_figures(profile: WorldProfile, least: Least) -> list[GpuFigures]:
    """The figures of every rank, without sentences (arena/profile/gpu_rules.py)."""
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
"""By which the clocks of a host and a GPU are taken to differ."""


def _call_figures(call: Span, inner: Sequence[Span]) -> dict[str, float]:
    """One call, by the fields of `GpuFigures`."""
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
    """Microseconds of a call's kernels by their names."""
    found: defaultdict[str, float] = defaultdict(float)
    for span in inner:
        if span.kind == "kernel":
            found[span.name] += span.us
    return found


def busy_parts(work: Sequence[Span]) -> list[tuple[float, float]]:
    """The parts of the time in which one of the spans was under way, in order: (begin, end) in microseconds."""
    parts: list[tuple[float, float]] = []
    for span in sorted(work, key=lambda span: span.start_us):
        end = span.start_us + span.us
        if parts and span.start_us <= parts[-1][1]:
            parts[-1] = (parts[-1][0], max(parts[-1][1], end))
        else:
            parts.append((span.start_us, end))
    return parts


def short_name(kernel: str) -> str:
    """A kernel's own name, without its type, namespaces, template arguments and parameters; the start of a very long one."""
    bare = (
        kernel.replace("(anonymous namespace)::", "")
        .replace("<unnamed>::", "")
        .removeprefix("void ")
        .partition("(")[0]
        .partition("<")[0]
    )
    name = bare.rpartition("::")[2] or kernel
    return name if len(name) <= MOST_NAME else f"{name[: MOST_NAME - 1]}…"
