"""Converts a profile to a trace in Chrome's format, for Perfetto: a process per rank, microseconds.

A rank on a GPU has rows for its calls, for its host, for every stream of its GPU, and for every block with stamps.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from arena.paths import write_named_file
from arena.words.untrusted_text import printable
from sandbox.protocol.profile import WORK, RankProfile

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
            events.append(
                {
                    "ph": "X",
                    "pid": report.rank,
                    "tid": row,
                    "name": printable(span.name),
                    "cat": span.kind,
                    "ts": round(span.start_us - begin, 3),
                    "dur": round(span.us, 3),
                }
            )
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
