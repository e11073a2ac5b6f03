"""Draws a typical call of a profile as lanes of any width, which show what takes each rank's time. Pure.

A CPU rank has one lane. A rank on a GPU has two: the work of its GPU, and the work of its host until the call returns.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

from arena.paths import write_named_file
from arena.profile.rules import arrivals, calls_of
from arena.words.untrusted_text import printable
from sandbox.protocol.profile import WORK, RankProfile, Span

Sort = Literal["waiting", "exchange", "copy", "operation", "code", "sync", "launch"]

SIGNS: dict[Sort, str] = {
    "waiting": "▒", "exchange": "█", "copy": "▓", "operation": "░", "code": "·", "sync": "═", "launch": "▪",
}  # fmt: skip
"""The character for one cell of a lane. They can be told apart without colours."""
WORDS: dict[Sort, str] = {
    "waiting": "waits for another rank",
    "exchange": "in a collective or a barrier",
    "copy": "a copy",
    "operation": "other torch or C++",
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
"""As WORDS, for the two lanes of a rank on a GPU."""
COPIES = frozenset({"copy_", "clone", "contiguous", "to", "_to_copy", "cat", "stack"})
"""Operations of torch that only move bytes."""


class LanePiece(NamedTuple):
    """A part of a lane. Times are in microseconds; time 0 is the start of the timeline."""

    sort: Sort
    start_us: float
    us: float


class Timeline(NamedTuple):
    """One call on all ranks."""

    call: int
    """Its index among the profiled calls, from 0."""
    calls: int
    us: float
    """From the first rank's start to the last rank's end."""
    lanes: list[list[LanePiece]]
    """By rank. The piece "code" is the whole call and contains the others, which overlap only on several GPU
    streams."""
    host_lanes: Sequence[list[LanePiece]] = ()
    """By rank, for ranks on GPUs. "code" is the time until the call returned."""

    @property
    def words(self) -> dict[Sort, str]:
        """The meanings of the signs in these lanes."""
        return GPU_WORDS if self.host_lanes else WORDS


def typical_call(reports: Sequence[RankProfile]) -> Timeline | None:
    """Returns the call whose times of each sort are nearest to the medians, which the sentences name; None: no call."""
    calls = [calls_of(report) for report in reports]
    count = min(map(len, calls), default=0)
    drawn = [_timeline([of_rank[number] for of_rank in calls], number, count) for number in range(count)]
    times = [
        [sum(piece.us for piece in lane if piece.sort == sort) for lane in each.lanes for sort in SIGNS]
        for each in drawn
    ]
    middle = [median(across) for across in zip(*times, strict=True)]
    return min(drawn, key=lambda each: math.dist(times[each.call], middle), default=None)


def _timeline(calls: Sequence[tuple[Span, list[Span]]], number: int, count: int) -> Timeline:
    """Draws one call, given by rank."""
    begin = min(call.start_us for call, _ in calls)
    end = max(call.start_us + call.us for call, _ in calls)
    inner = [spans for _, spans in calls]
    waits = [[span for span in spans if span.kind == "wait"] for spans in inner]
    arrived = [start for start, _ in arrivals(waits)]
    lanes = [
        [LanePiece("code", call.start_us - begin, call.us), *_pieces(spans, arrived, begin)] for call, spans in calls
    ]
    hosts = [  # empty for a CPU rank
        [LanePiece(_OF_HOST[each.kind], each.start_us - begin, each.us) for each in spans if each.kind in _OF_HOST]
        for spans in inner
    ]
    return Timeline(number, count, end - begin, lanes, hosts if any(hosts) else ())


def _pieces(spans: Sequence[Span], arrived: Sequence[float], begin: float) -> list[LanePiece]:
    """Returns one rank's pieces of a call. A collective is "waiting" until the last rank arrives, then "exchange"."""
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


def cells(lane: Sequence[LanePiece], us: float, width: int) -> list[Sort | None]:
    """Divides `us` microseconds of a lane into `width` cells: the main sort of each, None outside the call."""
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
    """Returns the sort with the largest share of a cell. "code" gets what the other sorts leave of the call."""
    outside = 1.0 - shares["code"]
    left = shares["code"] - sum(share for sort, share in shares.items() if sort != "code")
    shares = {**shares, "code": left}
    found = max(shares, key=lambda sort: shares[sort])
    return found if shares[found] >= outside else None


_ROWS = {"call": 0, "wait": 1, "op": 2}
_NAMES = {0: "calls", 1: "collectives and barriers", 2: "operations of torch"}
_HOST_ROWS = {"call": 0, "host": 1, "op": 2, "launch": 3, "sync": 3}
_HOST_NAMES = {
    0: "calls",
    1: "host: in the call",
    2: "host: operations of torch",
    3: "host: launches and waits for the GPU",
}
_FIRST_STREAM, _FIRST_BLOCK = 10, 1000


def chrome_trace(reports: Sequence[RankProfile]) -> str:
    """Returns the trace as JSON. Time 0 is the start of the first span of any rank."""
    begin = min((span.start_us for report in reports for span in report.spans), default=0.0)
    events: list[dict[str, object]] = []
    for report in reports:
        rows, names = _rows(report)
        about = {"ph": "M", "pid": report.rank}
        events.append({**about, "name": "process_name", "args": {"name": f"rank {report.rank}"}})
        for number, name in names.items():
            events.append({**about, "tid": number, "name": "thread_name", "args": {"name": name}})
            events.append({**about, "tid": number, "name": "thread_sort_index", "args": {"sort_index": number}})
        for span, row in zip(report.spans, rows, strict=True):
            if row is None:
                continue
            what = {"ph": "X", "pid": report.rank, "tid": row, "name": printable(span.name), "cat": span.kind}
            events.append({**what, "ts": round(span.start_us - begin, 3), "dur": round(span.us, 3)})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _rows(report: RankProfile) -> tuple[list[int | None], dict[int, str]]:
    """Returns the row of each span, None for an unknown kind, and the names of the rows."""
    if not any(span.kind == "host" for span in report.spans):
        return [_ROWS.get(span.kind) for span in report.spans], _NAMES
    streams = sorted({span.stream for span in report.spans if span.kind in WORK})
    of_stream = {stream: _FIRST_STREAM + place for place, stream in enumerate(streams)}
    blocks = sorted({span.stream for span in report.spans if span.kind == "stamp"})
    of_block = {block: _FIRST_BLOCK + place for place, block in enumerate(blocks)}
    names = _HOST_NAMES | {row: f"GPU: stream {stream}" for stream, row in of_stream.items()}
    names |= {row: f"block {block}: between stamps" for block, row in of_block.items()}
    rows = [
        of_stream[span.stream]
        if span.kind in WORK
        else of_block[span.stream]
        if span.kind == "stamp"
        else _HOST_ROWS.get(span.kind)
        for span in report.spans
    ]
    return rows, names


def write_trace(path: Path, reports: Sequence[RankProfile]) -> None:
    """Writes the trace to a file in an existing folder. Blocks.

    Raises:
        FolderUnwritable: nothing was written.
    """
    write_named_file(path, chrome_trace(reports))
