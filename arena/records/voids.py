"""Voided results: results and kernels marked as not earned. They stay in their journals and are left out of rankings.

The journal `voids.jsonl` has one line for each mark and one for each mark that was taken back.
"""

import functools
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from arena.errors import MachineError, why
from arena.records.json_lines import decoder, whole_lines
from arena.words.untrusted_text import one_line

NOTE_CHARACTERS = 500
VOIDS_SUFFIX = ".voids"
"""Suffix of the journal of voids beside a sweep's journal from elsewhere. It applies to that sweep alone."""
DAMAGED_ADVICE = "remove these lines, and void the results again"
"""Advice for `Voids.damaged`."""


class Void(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the journal. Fields are added, never renamed. Either `run` or `code` is set."""

    at: float
    """Seconds since the epoch."""
    note: str
    """Why the result is not earned."""
    by: str
    """Who voided it."""
    run: str = ""
    """Id of a run or a duel."""
    code: str = ""
    """Hash of a kernel's code (`arena.records.code_hash`): all its results are voided."""
    undo: bool = False
    """The mark on this run or code is taken back."""

    @property
    def words(self) -> str:
        """ "voided by anna: reads the expected output"."""
        return f"voided by {self.by}: {self.note}"


_decode: Callable[[bytes], Void] = decoder(Void)


class Voids:
    """The marks that are in force."""

    def __init__(self, lines: Iterable[Void] = (), damaged: str = "") -> None:
        self.runs: dict[str, Void] = {}
        """By id of the run or the duel."""
        self.kernels: dict[str, Void] = {}
        """By hash of the code."""
        self.damaged = damaged
        """A sentence that names the lines of the journal that cannot be read; empty if there are none."""
        for line in lines:
            marks, name = (self.runs, line.run) if line.run else (self.kernels, line.code)
            marks.pop(name, None)
            if not line.undo:
                marks[name] = line

    def of(self, run: str, code: str) -> Void | None:
        """Returns the mark on a result or on its kernel; None without one."""
        return self.runs.get(run) or self.kernels.get(code)

    def and_those(self, other: "Voids") -> "Voids":
        """Returns the marks of both."""
        lines = [line for voids in (self, other) for marks in (voids.runs, voids.kernels) for line in marks.values()]
        return Voids(lines)

    def __bool__(self) -> bool:
        return bool(self.runs or self.kernels)


NO_VOIDS = Voids()


def read_voids(path: Path) -> Voids:
    """Returns the marks in this journal; none if there is no file. Reads the file only if it has changed.

    Raises:
        MachineError: it cannot be read.
    """
    try:
        found = path.stat()
        return _read(path, found.st_ino, found.st_mtime_ns, found.st_size)
    except FileNotFoundError:
        return NO_VOIDS
    except OSError as error:
        raise MachineError(f"cannot read {path}: {why(error)}", "make it readable: it says what is voided") from None


@functools.lru_cache(maxsize=64)
def _read(path: Path, inode: int, changed: int, size: int) -> Voids:
    lines, damaged = [], []
    for line in whole_lines(path):
        try:
            lines.append(_decode(line.data))
        except ValueError:
            damaged.append(str(line.number))
    numbers = f"line{'s' * (len(damaged) > 1)} {', '.join(damaged)}"
    return Voids(lines, f"{path}: {numbers} cannot be read; what they voided counts" if damaged else "")


def clean_note(text: str) -> str:
    """Returns a note or a name as it is stored: one line without control characters."""
    return one_line(text)[:NOTE_CHARACTERS]
