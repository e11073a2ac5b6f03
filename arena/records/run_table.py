"""The table of runs: the same columns in the app, in `board --runs` and in its CSV. Each revision may have a note."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from arena.records.json_lines import append_line, decoder, whole_lines
from arena.records.run_record import RunRecord, Unrun
from arena.setting_choice import sizes_words
from arena.words.headline import TOO_NOISY, WHERE, by_clock, outcome_words
from arena.words.untrusted_text import one_line, printable

NOTES = Path(".revisions", "notes.jsonl")
"""The notes of all revisions, in the workspace."""

HEADINGS = (
    *("when", "verdict", "speedup", "low", "high", "µs", "baseline µs", "note", "kernel", "revision", "clock"),
    *("outcome", "player", "setting"),
)
RIGHT = frozenset({"speedup", "low", "high", "µs", "baseline µs"})
"""The columns of figures."""


class RevisionNote(msgspec.Struct, frozen=True):
    """A line of the file of notes. The last one of a revision counts."""

    sha256: str
    note: str
    at: float
    """Seconds since the epoch."""


_decode: Callable[[bytes], RevisionNote] = decoder(RevisionNote)


def read_notes(workspace: Path) -> dict[str, str]:
    """Returns the notes by SHA-256 of the revision. Leaves out lines that are damaged."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in whole_lines(workspace / NOTES):
            with suppress(ValueError):
                note = _decode(line.data)
                found[note.sha256] = note.note
    return found


def write_note(workspace: Path, sha256: str, note: str) -> None:
    """Gives a revision a note in place of its earlier one, and returns when it is on the disk. An empty one removes it.

    Raises:
        FolderUnwritable: it was not written; the earlier notes are kept.
    """
    append_line(workspace / NOTES, RevisionNote(sha256, one_line(note), time.time()))


def run_cells(entry: RunRecord | Unrun, note: str = "") -> dict[str, str]:
    """Returns the cells of a run by heading. Times are medians in microseconds by the clock of the headline.

    A cell is empty if nothing is known. `low` and `high` are the ends of the speedup's 99 % interval.
    """
    cells = dict.fromkeys(HEADINGS, "") | {
        "when": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.created)),
        "verdict": "not run",
        "note": printable(note),
        "revision": entry.sha256[:8],
    }
    if isinstance(entry, Unrun):
        return cells
    if entry.interval is not None:
        figures = (entry.interval.median, entry.interval.low, entry.interval.high)
        cells |= dict(zip(("speedup", "low", "high"), (f"{figure:.3f}" for figure in figures), strict=True))
    return cells | {
        "verdict": "VOIDED" if entry.voided else entry.verdict.value,
        "µs": _words(entry.time_us),
        "baseline µs": _words(by_clock(entry.baseline_us, entry.clock)),
        "kernel": printable(entry.kernel_name),
        "clock": WHERE.get(entry.clock, ""),
        "outcome": outcome_words(entry.outcome),
        "player": printable(entry.player),
        "setting": sizes_words(f"{entry.preset} {entry.dtype} W={entry.world} {entry.device}", entry.sizes),
    }


def _words(time_us: float | None) -> str:
    return "" if time_us is None else f"{time_us:.1f}"


def best_times(entries: list[RunRecord]) -> list[float]:
    """Returns the shortest time so far after each run whose speed is known, in microseconds. entries: newest first."""
    found: list[float] = []
    for entry in reversed(entries):
        if entry.outcome not in ("", TOO_NOISY) and not entry.voided and entry.time_us is not None:
            found.append(min([entry.time_us, *found[-1:]]))
    return found
