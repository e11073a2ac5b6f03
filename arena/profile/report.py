"""What a profile says, as lines with a role: the command line prints them, the profile screen colours and wraps them. Pure.

Ranks on GPUs have the driver's counters above their lanes, and what their own processes report below.
"""

from collections.abc import Callable, Iterable, Sequence

from arena.profile.gpu_rules import GpuFigures
from arena.profile.profile_process import Profiled
from arena.profile.rules import RankFigures, calls_of, profiled_words, under_profiler
from arena.words.untrusted_text import printable
from sandbox.protocol.profile import Outside, RankProfile

HEAD, ROW, NOTE, FACT, LACK, ADVICE = "head", "row", "note", "fact", "lack", "advice"
"""Roles of lines: head and row of a table, which are cut if they are too long; sentences, which are wrapped."""
Line = tuple[str, str]
"""Role and text."""

CLOCKS_US = 5.0
"""Differences between the clocks of a host and its GPU above this are reported."""
TRUSTED_HEAD = (
    f"{'':<8}{'call µs':>9}{'sent':>9}{'received':>9}{'least':>9}{'of link':>9}"
    f"{'HBM':>9}{'least':>9}{'of HBM':>8}{'SMs':>6}{'tensor':>8}"
)
"""The head of `trusted_row`: bytes per call, and shares of the GPU's peaks."""
SEEN_HEAD = (
    f"{'':<8}{'call µs':>9}{'busy':>9}{'idle':>9}{'kernels':>9}{'µs each':>9}{'syncs':>7}"
    f"{'collectives':>13}{'waits':>9}"
)
"""The head of `seen_row`: a single call as reported by the kernel's own process."""
CPU_HEAD = (
    f"{'':<8}{'call':>10}{'waits':>10}{'exchange':>10}{'torch':>10}{'other':>10}"
    f"{'collectives':>13}{'operations':>12}  longest operation"
)
"""The head of `cpu_row`: microseconds and counts per call."""
ALIGNED = "Spans of all GPUs are on the host's clock, as CUPTI converts each GPU's; ranks are not aligned any further."


def row_words(outside: Outside | None) -> str:
    """Describes in one line the calls over which the counters ran."""
    if outside is None:
        return "nothing was counted: the calls in a row did not come to their end"
    each = outside.seconds / outside.calls * 1e6
    return f"{each:,.1f} µs a call, {outside.calls:,} calls in a row, {outside.seconds:.2f} s"


def summary(found: Profiled) -> tuple[str, str]:
    """Returns the source of the figures that come first, and what it says about a call."""
    if found.gpu_figures:
        return "from outside", row_words(found.outside)
    return "profiled", under_profiler(found.figures)


def above_lanes(found: Profiled) -> list[Line]:
    """Returns the lines above the lanes: the driver's counters, with power, energy and what is missing."""
    ranks = found.gpu_figures
    if not ranks:
        return []
    power = [(FACT, line) for line in [power_line(ranks)] if line]
    return [*_table(TRUSTED_HEAD, map(trusted_row, ranks)), *power, *_all(LACK, missing_lines(found.outside, ranks))]


def below_lanes(found: Profiled) -> list[Line]:
    """Returns the lines below the lanes: figures from the kernel's own process, and what they lack."""
    ranks, seen = found.gpu_figures, "From the kernel's process:"
    if not ranks:
        calls = min((len(calls_of(report)) for report in found.reports), default=0)
        told = (NOTE, f"{seen} medians of {calls} calls in µs")
        return [told, *_table(CPU_HEAD, map(cpu_row, found.figures)), *_all(LACK, left_out_lines(found.reports))]
    call_us, row_us = (max(each) for each in zip(*((rank.call_us, rank.row_us or 0.0) for rank in ranks), strict=True))
    return [
        *_all(ADVICE, dict.fromkeys(rank.advice for rank in ranks if rank.advice)),
        (NOTE, f"{seen} µs of a single call under torch's profiler until its GPU is done"),
        (NOTE, profiled_words(call_us, row_us)),
        *_table(SEEN_HEAD, map(seen_row, ranks)),
        *_all(FACT, stamp_lines(ranks)),
        *_all(LACK, unseen_lines(ranks, found.reports)),
        (NOTE, ALIGNED),
    ]


def _all(role: str, texts: Iterable[str]) -> list[Line]:
    return [(role, text) for text in texts]


def _table(head: str, rows: Iterable[str]) -> list[Line]:
    return [(HEAD, head), *_all(ROW, rows)]


def profile_lines(found: Profiled, lanes: Callable[[int], list[str]] = lambda at: []) -> list[str]:
    """Returns the whole report as text. lanes: returns more lines below a rank's sentence, by its place."""
    told = [line for at, rank in enumerate(found.ranks) for line in (f"rank {rank.rank}  {rank.diagnosis}", *lanes(at))]
    first, last = (
        [f"→ {text}" if role == ADVICE else text for role, text in lines]
        for lines in (above_lanes(found), below_lanes(found))
    )
    return [": ".join(summary(found)), *first, "", *told, "", *last]


def cpu_row(found: RankFigures) -> str:
    """Formats a CPU rank, below CPU_HEAD."""
    other = max(0.0, found.call_us - found.wait_us - found.op_us)
    times = (found.call_us, found.late_us, found.wait_us - found.late_us, found.op_us, other)
    largest = f"{found.largest_us:>9,.1f} {printable(found.largest_op)}" if found.largest_op else ""
    return f"rank {found.rank:<3}{''.join(f'{us:>10,.1f}' for us in times)}{found.waits:>13g}{found.ops:>12g}{largest}"


def trusted_row(found: GpuFigures) -> str:
    """Formats one rank, below TRUSTED_HEAD. A dash: the driver does not report the value."""
    counted, least = found.counted, found.least
    rates = [rate for rate in (found.rate(counted.sent), found.rate(counted.received)) if rate is not None]
    link = max(rates) / found.link_peak if rates and found.link_peak else None
    call = f"{found.row_us:,.1f}" if found.row_us is not None else "-"
    return (
        f"rank {found.rank:<3}{call:>9}{_amount(counted.sent):>9}{_amount(counted.received):>9}"
        f"{_amount(max(least.sent, least.received)):>9}{_percent(link):>9}{_amount(found.dram_bytes):>9}"
        f"{_amount(least.local):>9}{_percent(counted.dram):>8}{_percent(counted.sm):>6}{_percent(counted.tensor):>8}"
    )


def power_line(found: Sequence[GpuFigures]) -> str:
    """Formats power and energy of all GPUs over the row; empty if the driver does not report them."""
    told = [
        f"rank {each.rank} {each.counted.watts:,.0f} W, {joules_words(each.joules)}"
        for each in found
        if each.counted.watts is not None and each.joules is not None
    ]
    off = 100 * max((each.counted.watts_error for each in found), default=0.0)
    return f"power, and energy a call: {'; '.join(told)} (±{off:.0f} %)" if told else ""


def joules_words(value: float) -> str:
    """Formats an energy in joules: "35.2 mJ"."""
    for unit, size in (("J", 1.0), ("mJ", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} µJ"


def seen_row(found: GpuFigures) -> str:
    """Formats one rank, below SEEN_HEAD."""
    if found.unseen:
        return f"rank {found.rank:<3} not seen"
    return (
        f"rank {found.rank:<3}{found.call_us:>9,.1f}{found.busy_us:>9,.1f}{found.idle_us:>9,.1f}{found.kernels:>9g}"
        f"{found.kernel_us:>9,.1f}{found.syncs:>7g}{found.waits:>13g}{found.late_us:>9,.1f}"
    )


def missing_lines(outside: Outside | None, found: Sequence[GpuFigures]) -> list[str]:
    """Lists missing counters and the reasons. Ranks with the same reason share a line."""
    lines = list(outside.missing) if outside is not None else []
    return lines + _by_reason((why, each.rank) for each in found for why in each.counted.missing)


def unseen_lines(found: Sequence[GpuFigures], reports: Sequence[RankProfile]) -> list[str]:
    """Lists what the spans do not show, and the reasons."""
    lines = _by_reason((each.unseen, each.rank) for each in found if each.unseen)
    lines += left_out_lines(reports)
    lines += [
        f"rank {each.rank}: its GPU's timestamps are {each.clock_us:.0f} µs off at the least"
        for each in found
        if each.clock_us > CLOCKS_US
    ]
    return lines


def left_out_lines(reports: Iterable[RankProfile]) -> list[str]:
    """Lists the ranks with too many spans, and how many were left out."""
    return [f"rank {each.rank}: {each.left_out} spans left out" for each in reports if each.left_out]


def stamp_lines(found: Sequence[GpuFigures]) -> list[str]:
    """Lists the times between a kernel's stamps and of the host in compiled functions, one line per rank."""
    return [
        f"rank {each.rank}: between stamps, and of the host in compiled functions, µs, medians, share of the call: "
        + ", ".join(f"{name} {us:,.1f} ({100 * us / each.call_us:.0f} %)" for name, us in each.stamps.items())
        for each in found
        if each.stamps
    ]


def _by_reason(reasons: Iterable[tuple[str, int]]) -> list[str]:
    """Returns a line for each reason, with its ranks."""
    ranks: dict[str, list[int]] = {}
    for why, rank in reasons:
        ranks.setdefault(why, []).append(rank)
    return [f"rank{'s' * (len(who) > 1)} {', '.join(map(str, who))}: {why}" for why, who in ranks.items()]


def _amount(value: float | None) -> str:
    """Formats bytes: "12.1 MB"."""
    if value is None:
        return "-"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= 0.9995 * size:
            shown = value / size
            return f"{shown:.0f} {unit}" if shown >= 99.5 else f"{shown:.1f} {unit}"
    return f"{value:.0f} B"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"
