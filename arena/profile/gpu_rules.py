"""The figures of GPU ranks from the driver's counters and all spans, and a diagnosis of each. Pure: no clock, no process."""

import itertools
from collections.abc import Sequence
from statistics import median

import msgspec

from arena.profile.rules import calls_of, largest, percent, share, waits_for
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
    """Microseconds between two stamps of a block ("0 to 1"), and of the host in an extension's function ("C++ add"), medians."""
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
    kernel, largest_us = largest(calls, "kernel")
    return msgspec.structs.replace(
        found,
        unseen="",
        **{field: median(each[field] for each in by_call) for field in by_call[0]},
        late_us=late_us,
        late_rank=late_rank,
        largest=short_name(kernel),
        largest_us=largest_us,
        stamps=_medians(calls),
    )


def _medians(calls: list[tuple[Span, list[Span]]]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for span in (span for _, inner in calls for span in inner):
        if span.kind == "stamp" or span.name.startswith("C++ "):
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


LATE, EXCHANGE, BUSY, IDLE = 0.3, 0.5, 0.4, 0.3
"""Smallest shares of a call for the diagnoses: waits for a rank, in collectives, in one kernel, GPU idle."""
AFTER_SYNCS = 0.2
"""Smallest share of a call for the diagnosis that the GPU idles after the host waited for it."""
SMALL_US, MANY = 12.0, 12
"""MANY or more kernels per call, of at most SMALL_US on average, take longer to launch than to run."""
AT_MEASURED, AT_SPEED, AT_HBM = 0.85, 0.7, 0.75
"""Practical limits: shares of the measured link bandwidth, the nominal link speed, the memory bandwidth."""
TOO_MUCH, WORTH, LEAST_BYTES = 1.3, 0.25, 1 << 20
"""A call moves too many bytes if they exceed TOO_MUCH times those that it must move, exceed LEAST_BYTES, and use at
least the share WORTH of the bandwidth."""


def gpu_ranks(profile: WorldProfile, least: Least) -> list[GpuFigures]:
    """Returns the figures of every rank, with diagnosis and advice."""
    figures = [(found, *diagnosis(found)) for found in gpu_figures(profile, least)]
    return [msgspec.structs.replace(found, diagnosis=said, advice=advice) for found, said, advice in figures]


def diagnosis(found: GpuFigures) -> tuple[str, str]:
    """Returns one sentence on what takes this rank's time, and the usual remedy or ""."""
    if found.unseen:
        return _moves(found) or ("what takes its time was not seen", "")
    if found.late_rank is not None and found.late_us >= LATE * found.call_us:
        late = share(found.late_us, found.call_us)
        return (
            f"waits for rank {found.late_rank}: its collectives spin {late} until that rank arrives",
            f"even out the work: rank {found.late_rank} comes late, its own lane shows with what",
        )
    nothing = (
        f"nothing stands out: {found.kernels:g} kernels, collectives {percent(found.wait_us, found.call_us)}, "
        f"the GPU idle {percent(found.idle_us, found.call_us)}"
    )
    return _moves(found) or _spends(found) or (nothing, "")


def _moves(found: GpuFigures) -> tuple[str, str] | None:
    """Returns what the counters say about the bytes of a call, over NVLink and through HBM; None if nothing stands out."""
    rate, of_peak = _link(found)
    sent = _too_much_sent(found)
    if of_peak >= (AT_MEASURED if found.least.link else AT_SPEED):
        source = "measured" if found.least.link else "by the links' speed"
        said = f"at the link: {rate / 1e9:,.0f} GB/s over NVLink, {100 * of_peak:.0f} % of its peak ({source})"
        if sent is not None:
            return f"{said}; moves {sent:.1f}x the bytes over it that it must", "send each byte once"
        return said, "only fewer bytes help: a smaller type on the way, or work that hides the exchange"
    dram, moved = found.counted.dram, found.dram_bytes
    if dram is not None and moved is not None:
        ratio = moved / found.least.local if found.least.local else 0.0
        too_much = ratio > TOO_MUCH and moved > LEAST_BYTES and dram >= WORTH
        fuse = "fuse passes over the same tensor: read it once, write each result once"
        said = f"at HBM: {100 * dram:.0f} % of its bandwidth"
        if dram >= AT_HBM and too_much:
            return f"{said}; moves {ratio:.1f}x the bytes that it must", fuse
        if dram >= AT_HBM:
            return said, "only fewer bytes help: a smaller type, or results that never leave the chip"
        if too_much:
            return f"moves {ratio:.1f}x the bytes through HBM that it must ({100 * dram:.0f} % of its bandwidth)", fuse
    if sent is not None and of_peak >= WORTH:
        said = f"moves {sent:.1f}x the bytes over NVLink that it must"
        return said, "send each byte once, to those ranks alone that need it"
    return None


def _spends(found: GpuFigures) -> tuple[str, str] | None:
    """Returns what the spans say about the time of a call; None if nothing stands out."""
    call = found.call_us
    if found.syncs >= 1 and found.after_sync_us >= AFTER_SYNCS * call:
        noun = "synchronisation" if found.syncs == 1 else "synchronisations"
        idles = share(found.after_sync_us, call)
        return (
            f"host-bound: {found.syncs:g} {noun} a call, behind which the GPU idles {idles}",
            "keep values on the GPU: no .item(), .cpu() or synchronize() between kernels",
        )
    if found.kernels >= MANY and found.kernel_us <= SMALL_US and found.idle_us >= IDLE * call:
        each = f"launch-bound: {found.kernels:g} kernels a call, each of {found.kernel_us:.1f} µs"
        return (
            f"{each}; gaps between them {share(found.idle_us, call)}",
            "fuse the kernels, or capture the call once and replay it as a CUDA graph",
        )
    if found.wait_us >= EXCHANGE * call:
        noun = "collective" if found.waits == 1 else "collectives"
        return (
            f"exchanges: {share(found.wait_us, call)} in {found.waits:g} {noun}",
            "fewer bytes or fewer steps, or compute meanwhile on another stream",
        )
    if found.idle_us >= EXCHANGE * call:
        return (
            f"the GPU idles: {share(found.idle_us, call)} pass before and between {found.kernels:g} kernels",
            "the host is slow to launch: less Python in a call, nothing allocated or compiled in it",
        )
    if call > 0 and found.largest_us >= BUSY * call:
        tensor = found.counted.tensor
        at_work = f"; tensor cores busy {100 * tensor:.0f} % of the time" if tensor is not None else ""
        return f"computes: {found.largest} takes {share(found.largest_us, call)}{at_work}", ""
    return None


def _link(found: GpuFigures) -> tuple[float, float]:
    """Returns bytes/s over NVLink in the busier direction and their share of the peak; zeros if unknown."""
    rates = [found.rate(amount) for amount in (found.counted.sent, found.counted.received)]
    rate = max((rate for rate in rates if rate is not None), default=0.0)
    return (rate, rate / found.link_peak) if found.link_peak else (0.0, 0.0)


def _too_much_sent(found: GpuFigures) -> float | None:
    """Returns the ratio of moved bytes over NVLink to necessary bytes; None if it is not too high."""
    ratios = [
        moved / must
        for moved, must in ((found.counted.sent, found.least.sent), (found.counted.received, found.least.received))
        if moved is not None and must > 0 and moved > LEAST_BYTES
    ]
    return max((ratio for ratio in ratios if ratio > TOO_MUCH), default=None)
