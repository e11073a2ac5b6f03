"""The median call of a profile as lanes: what takes each rank's time, drawn over any width. Pure.

A CPU rank has one lane. A rank on a GPU has two: what its GPU does, and what its host does until the call has returned.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from arena.profile.rules import calls_of
from sandbox.protocol.profile import RankProfile, Span

Sort = Literal["waiting", "exchange", "copy", "operation", "code", "sync", "launch"]

SIGNS: dict[Sort, str] = {
    "waiting": "▒", "exchange": "█", "copy": "▓", "operation": "░", "code": "·", "sync": "═", "launch": "▪",
}  # fmt: skip
"""One cell of a lane; they differ without colours, too."""
WORDS: dict[Sort, str] = {
    "waiting": "waits for another rank",
    "exchange": "in a collective or a barrier",
    "copy": "a copy",
    "operation": "another operation of torch",
    "code": "other code",
}
GPU_WORDS: dict[Sort, str] = {
    "operation": "a kernel",
    "copy": "a copy",
    "waiting": "a collective waits for another rank",
    "exchange": "in a collective",
    "launch": "launches",
    "sync": "waits for the GPU",
    "code": "idle; on the host: other code",
}
"""The same of the two lanes of a rank on a GPU."""
COPIES = frozenset({"copy_", "clone", "contiguous", "to", "_to_copy", "cat", "stack"})
"""Operations of torch that only move bytes."""


class LanePiece(NamedTuple):
    """A part of a lane. Microseconds, counted from the begin of the timeline."""

    sort: Sort
    start_us: float
    us: float


class Timeline(NamedTuple):
    """One call on all ranks."""

    call: int
    """Its place among the calls that were looked at, from 0."""
    calls: int
    us: float
    """From the first rank's start to the last rank's end."""
    lanes: list[list[LanePiece]]
    """By rank. The piece "code" is the whole call; all others lie in it: side by side, but for work on several streams."""
    host_lanes: Sequence[list[LanePiece]] = ()
    """By rank, of ranks on GPUs; "code" is the call until it returned."""

    @property
    def words(self) -> dict[Sort, str]:
        """What the signs of these lanes say."""
        return GPU_WORDS if self.host_lanes else WORDS


def median_call(reports: Sequence[RankProfile]) -> Timeline | None:
    """The call whose length over all ranks is the median (the lower one of an even count); None without a call."""
    calls = [calls_of(report) for report in reports]
    count = min(map(len, calls), default=0)
    if count == 0:
        return None
    ends = []
    for number in range(count):
        here = [of_rank[number][0] for of_rank in calls]
        ends.append((min(call.start_us for call in here), max(call.start_us + call.us for call in here)))
    number = sorted(range(count), key=lambda at: ends[at][1] - ends[at][0])[(count - 1) // 2]
    begin, end = ends[number]
    inner = [of_rank[number][1] for of_rank in calls]
    waits = [[span for span in spans if span.kind == "wait"] for spans in inner]
    arrived = _arrivals(waits)
    lanes = [
        [LanePiece("code", call.start_us - begin, call.us), *_pieces(spans, arrived, begin)]
        for (call, spans) in (of_rank[number] for of_rank in calls)
    ]
    hosts = [_host_pieces(spans, begin) for spans in inner]
    return Timeline(number, count, end - begin, lanes, hosts if any(hosts) else ())


def _arrivals(waits: Sequence[Sequence[Span]]) -> list[float]:
    """When the last rank came to each collective; nothing where the ranks' collectives do not match."""
    names = [[span.name for span in spans] for spans in waits]
    if any(each != names[0] for each in names):
        return []
    return [max(span.start_us for span in together) for together in zip(*waits, strict=True)]


def _pieces(spans: Sequence[Span], arrived: Sequence[float], begin: float) -> list[LanePiece]:
    """What lies in a call of one rank. A collective waits until the last rank has come, then it exchanges."""
    found: list[LanePiece] = []
    on_gpu = any(span.kind == "host" for span in spans)
    collectives = 0
    for span in spans:
        start = span.start_us - begin
        if span.kind in _OF_HOST or (on_gpu and span.kind in ("op", "stamp")):
            continue
        if span.kind != "wait":
            copies = span.kind == "copy" or span.name.removeprefix("aten::") in COPIES
            found.append(LanePiece("copy" if copies else "operation", start, span.us))
            continue
        last = arrived[collectives] if arrived else span.start_us
        collectives += 1
        waited = min(max(last - span.start_us, 0.0), span.us)
        found += [LanePiece("waiting", start, waited), LanePiece("exchange", start + waited, span.us - waited)]
    return found


_OF_HOST: dict[str, Sort] = {"host": "code", "launch": "launch", "sync": "sync"}


def _host_pieces(spans: Sequence[Span], begin: float) -> list[LanePiece]:
    """What the host of a rank on a GPU does in a call; nothing for a CPU rank."""
    return [LanePiece(_OF_HOST[each.kind], each.start_us - begin, each.us) for each in spans if each.kind in _OF_HOST]


def cells(lane: Sequence[LanePiece], us: float, width: int) -> list[Sort | None]:
    """A lane in `width` cells that stand for `us` microseconds: in each what takes most of it; None outside the call."""
    if us <= 0.0:
        return [None] * width
    covered: list[dict[Sort, float]] = [dict.fromkeys(SIGNS, 0.0) for _ in range(width)]
    for piece in lane:
        first = max(0.0, piece.start_us / us * width)
        last = min(float(width), (piece.start_us + piece.us) / us * width)
        for cell in range(int(first), math.ceil(last)):
            covered[cell][piece.sort] += min(last, cell + 1) - max(first, cell)
    return [_most(shares) for shares in covered]


def _most(shares: dict[Sort, float]) -> Sort | None:
    """The sort with the largest share of a cell, where "code" is what the others leave of the call."""
    outside = 1.0 - shares["code"]
    left = shares["code"] - sum(share for sort, share in shares.items() if sort != "code")
    shares = {**shares, "code": left}
    found = max(shares, key=lambda sort: shares[sort])
    return found if shares[found] >= outside else None
