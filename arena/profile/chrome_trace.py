"""A profile as a trace in Chrome's format, which Perfetto opens: a process a rank, microseconds."""

import json
from collections.abc import Sequence
from pathlib import Path

from arena.foreign_text import printable
from arena.paths import unwritable
from arena.workspace.atomic_file import write_atomically
from sandbox.protocol.profile import RankProfile

_ROWS = {"call": 0, "wait": 1, "op": 2}
_NAMES = ("calls", "collectives and barriers", "operations of torch")


def chrome_trace(reports: Sequence[RankProfile]) -> str:
    """The trace as JSON; it begins with the first span of any rank."""
    begin = min((span.start_us for report in reports for span in report.spans), default=0.0)
    events: list[dict[str, object]] = []
    for report in reports:
        about = {"ph": "M", "pid": report.rank}
        events.append({**about, "name": "process_name", "args": {"name": f"rank {report.rank}"}})
        for row, name in enumerate(_NAMES):
            events.append({**about, "tid": row, "name": "thread_name", "args": {"name": name}})
        for span in report.spans:
            if span.kind not in _ROWS:
                continue
            events.append(
                {
                    "ph": "X",
                    "pid": report.rank,
                    "tid": _ROWS[span.kind],
                    "name": printable(span.name),
                    "cat": span.kind,
                    "ts": round(span.start_us - begin, 3),
                    "dur": round(span.us, 3),
                }
            )
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def write_trace(path: Path, reports: Sequence[RankProfile]) -> None:
    """Writes the trace into a file, whose folder is there. Blocks.

    Raises:
        FolderUnwritable: nothing was written.
    """
    try:
        write_atomically(path, chrome_trace(reports).encode())
    except OSError as error:
        raise unwritable(path, error) from None
