"""Turns the spans of all CPU ranks into figures and a diagnosis per rank. Pure: no clock, no process."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

import msgspec

from sandbox.protocol.profile import RankProfile, Span

LATE, EXCHANGE, BUSY = 0.3, 0.5, 0.4
"""Smallest shares of a call for the diagnoses: waits for a rank, in collectives, in one kind of work."""
SMALL_US, MANY = 15.0, 12
"""MANY or more operations per call, of at most SMALL_US on average, take longer to start than to run."""


class RankFigures(msgspec.Struct, frozen=True):
    """The figures of one CPU rank: microseconds per call, medians over the calls."""

    rank: int
    call_us: float
    wait_us: float
    """Time in collectives and barriers, including `late_us`."""
    late_us: float
    """Part of `wait_us` before the last rank arrived."""
    late_rank: int | None
    """The rank that this rank waited for the longest; None if it waited for no rank."""
    waits: float
    """Collectives and barriers per call."""
    op_us: float
    """Time in torch operations outside collectives."""
    ops: float
    """Number of those operations per call."""
    largest_op: str
    largest_us: float
    plain_us: float = 0.0
    """Time of a call without the profiler; 0 if it was not measured."""
    diagnosis: str = ""


def under_profiler(ranks: Sequence[RankFigures]) -> str:
    """Describes how much the profiler slows down a call. The slowest rank counts, as in timing."""
    call_us, plain_us = (max((getattr(r, name) for r in ranks), default=0.0) for name in ("call_us", "plain_us"))
    return profiled_words(call_us, plain_us)


def profiled_words(call_us: float, plain_us: float) -> str:
    """ "a call takes 2,450 µs under the profiler, 9.8× as long as without it (250 µs); ..."."""
    words = f"a call takes {call_us:,.0f} µs under the profiler"
    if plain_us > call_us:
        words += f" and {plain_us:,.0f} µs without it: too noisy to compare"
    elif plain_us > 0:
        words += f", {call_us / plain_us:.1f}× as long as without it ({plain_us:,.0f} µs)"
    return f"{words}; times and shares below are of the profiled call"


def figures(reports: Sequence[RankProfile]) -> list[RankFigures]:
    """Returns the figures and the diagnosis of every rank.

    In calls in which the ranks' collectives do not match, no waiting for a late rank is counted.
    """
    found = [_of_rank(report, *late) for report, late in zip(reports, waits_for(reports), strict=True)]
    return [msgspec.structs.replace(rank, diagnosis=diagnosis(rank)) for rank in found]


def first_failure(reports: Sequence[RankProfile]) -> RankProfile | None:
    """Returns the rank that failed first, or None. It is the cause: its peers fail because it is gone."""
    failed = [report for report in reports if report.failed]
    return min(failed, key=lambda report: report.failed_at, default=None)


def calls_of(report: RankProfile) -> list[tuple[Span, list[Span]]]:
    """Returns each call with the spans that start within it."""
    calls = [span for span in report.spans if span.kind == "call"]
    return [
        (
            call,
            [
                span
                for span in report.spans
                if span.kind != "call" and call.start_us <= span.start_us < call.start_us + call.us
            ],
        )
        for call in calls
    ]


def waits_for(reports: Sequence[RankProfile]) -> list[tuple[float, int | None]]:
    """Returns for each rank: microseconds per call of waiting in collectives for the last rank, and which rank."""
    waits = [[[span for span in inner if span.kind == "wait"] for _, inner in calls_of(report)] for report in reports]
    found = []
    for mine in waits:
        late: list[float] = []
        waited_for: Counter[int] = Counter()
        """By rank: nanoseconds."""
        for number, spans in enumerate(mine):
            arrived = arrivals([each[number] if number < len(each) else [] for each in waits])
            late.append(0.0)
            for span, (start, place) in zip(spans, arrived, strict=False):
                if (waited := min(start - span.start_us, span.us)) > 0:
                    late[-1] += waited
                    waited_for[reports[place].rank] += round(waited * 1000)
        found.append((_median(late), waited_for.most_common(1)[0][0] if waited_for else None))
    return found


def arrivals(waits: Sequence[Sequence[Span]]) -> list[tuple[float, int]]:
    """Returns when the last rank arrived at each collective of a call, and its place; empty if they do not match."""
    names = [[span.name for span in spans] for spans in waits]
    if any(each != names[0] for each in names):
        return []
    starts = [[span.start_us for span in together] for together in zip(*waits, strict=True)]
    return [(max(each), each.index(max(each))) for each in starts]


def _of_rank(report: RankProfile, late_us: float, late_rank: int | None) -> RankFigures:
    calls = calls_of(report)
    largest_op, largest_us = largest(calls, "op")
    return RankFigures(
        rank=report.rank,
        call_us=_median([call.us for call, _ in calls]),
        plain_us=report.plain_us,
        wait_us=_median([_in(inner, "wait") for _, inner in calls]),
        late_us=late_us,
        late_rank=late_rank,
        waits=_median([sum(span.kind == "wait" for span in inner) for _, inner in calls]),
        op_us=_median([_in(inner, "op") for _, inner in calls]),
        ops=_median([sum(span.kind == "op" for span in inner) for _, inner in calls]),
        largest_op=largest_op,
        largest_us=largest_us,
    )


def largest(calls: Sequence[tuple[Span, list[Span]]], kind: str) -> tuple[str, float]:
    """Returns the name of the spans of a kind that take the most time of a call together, and its median in microseconds."""
    by_name: dict[str, list[float]] = {}
    for number, (_, inner) in enumerate(calls):
        for span in inner:
            if span.kind == kind:
                by_name.setdefault(span.name, [0.0] * len(calls))[number] += span.us
    name = max(sorted(by_name), key=lambda name: median(by_name[name]), default="")
    return name, _median(by_name.get(name, []))


def _in(spans: Sequence[Span], kind: str) -> float:
    return sum(span.us for span in spans if span.kind == kind)


def _median(values: Sequence[float]) -> float:
    return float(median(values)) if values else 0.0


def diagnosis(found: RankFigures) -> str:
    """Returns one sentence on what takes this rank's time."""
    call = found.call_us
    if call <= 0:
        return "no call was seen"
    elsewhere = max(0.0, call - found.wait_us - found.op_us)
    if found.late_us >= LATE * call and found.late_rank is not None:
        return f"waits for rank {found.late_rank}: {share(found.late_us, call)} until it arrives"
    if found.wait_us >= EXCHANGE * call:
        late = f", {found.late_us:.0f} µs of it until all ranks are there" if found.late_us >= 0.1 * call else ""
        noun = "collective" if found.waits == 1 else "collectives"
        return f"exchanges: {share(found.wait_us, call)} in {found.waits:g} {noun}{late}; fewer bytes or fewer steps would help"
    if found.ops >= MANY and found.op_us / found.ops <= SMALL_US and found.op_us >= 0.2 * call:
        return (
            f"many small operations: {found.ops:.0f} a call of {found.op_us / found.ops:.1f} µs each; "
            f"{share(found.op_us + elsewhere, call)} to start and do them"
        )
    if found.largest_us >= BUSY * call:
        return f"computes: {found.largest_op} takes {share(found.largest_us, call)}"
    if elsewhere >= BUSY * call:
        return f"outside torch: {share(elsewhere, call)} in Python, or in compiled code that torch does not see"
    return (
        f"nothing stands out: collectives {share(found.wait_us, call)}, {found.ops:.0f} operations "
        f"{percent(found.op_us, call)}, the rest {percent(elsewhere, call)}"
    )


def share(us: float, call_us: float) -> str:
    """Formats a part of a call: "62 % of a call (813 µs)"."""
    return f"{percent(us, call_us)} of a call ({us:,.0f} µs)"


def percent(us: float, call_us: float) -> str:
    """Formats a share of a call: "62 %"."""
    return f"{100 * us / call_us:.0f} %" if call_us > 0 else "0 %"
