"""A sweep's journal: one line per result, synced to disk before the next result is written.

A line that a crash or a full disk cut short is removed.
"""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import msgspec

from arena.errors import MachineError, PathRefused, UsageError, why
from arena.machine.facts import installed_version
from arena.models.budget import Spent
from arena.paths import Paths, files_in, make_folder, unwritable
from arena.sweep import records
from arena.sweep.plan import SweepPlan
from arena.sweep.workers import Worker


class JournalDamaged(MachineError):
    """A file in the folder of sweeps is no journal, or has an unreadable line."""


class NoJournal(JournalDamaged):
    """The first line of a file in the folder of sweeps names no sweep."""


class SweepJournal:
    """A journal that only this process has open for writing. Keeps keys and offsets in memory, no results."""

    def __init__(self, path: Path, name: str) -> None:
        """Opens the journal, or creates it.

        Raises:
            MachineError: another process has it open.
            FolderUnwritable: it cannot be created or written.
            JournalDamaged: the file is no sweep's journal.
        """
        make_folder(path.parent)
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unwritable(path.parent, error) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise MachineError(
                f"another process is at work on the sweep {name}",
                "wait for it, watch it in the app (c in the list of problems), or choose another --name",
            ) from None
        self._size = 0
        self._session_start = self._session_end = -1
        """Offsets of the line of this process's session, and of the line after it; -1 before it begins."""
        self._done: set[str] = set()
        self._written: dict[str, int] = {}
        """Offset of the `Written` line, by the digest of its cell."""
        self.spent = Spent()
        """Spent by all sessions so far. Unfinished requests of a killed session are not counted."""
        self.sessions: list[records.SweepSession] = []
        try:
            self._read()
            if not self._size:
                self.append(records.SweepOpened(at=time.time(), name=name))
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        for offset, end, line in _lines(self.path):
            self._size = end
            self._note(line, offset)
        try:
            os.ftruncate(self._file, self._size)  # removes a line that a crash cut short
        except OSError as error:
            raise unwritable(self.path.parent, error) from None

    def _note(self, line: records.AnyLine, offset: int) -> None:
        match line:
            case records.CellResult():
                if line.final:
                    self._done.add(line.key)
            case records.Written():
                self._written[line.cell.digest] = offset
                self.spent += line.spent
            case records.Unanswered():
                self.spent += line.spent
            case records.SweepSession():
                self.sessions.append(line)

    def append(self, line: records.AnyLine) -> None:
        """Writes a line and waits until it is on the disk. Blocks for milliseconds.

        Raises:
            MachineError: the line could not be written; the file is unchanged.
        """
        data = msgspec.json.encode(line) + b"\n"
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self._size + written)
            os.fsync(self._file)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise MachineError(
                f"cannot write {self.path}: {error.strerror}",
                "free some disk space, then continue with --resume; all results so far are in the file",
            ) from None
        self._note(line, self._size)
        if isinstance(line, records.SweepSession):
            self._session_start, self._session_end = self._size, self._size + len(data)
        self._size += len(data)

    def is_done(self, key: str) -> bool:
        """Whether there is a result with this key."""
        return key in self._done

    def written(self, cell: str) -> records.Written | None:
        """Returns the stored answer of a cell, by its digest; None without one."""
        offset = self._written.get(cell)
        if offset is None:
            return None
        with self.path.open("rb") as file:
            file.seek(offset)
            line = records.decode_line(file.readline())
        return line if isinstance(line, records.Written) else None

    def leave(self) -> None:
        """Closes the journal, and removes it if no session began."""
        if self._file >= 0 and not self.sessions:
            self.discard()
        self.close()

    def withdraw_session(self) -> None:
        """Removes the line of the last session if no line follows it. `leave` then discards a new journal."""
        if self.sessions and self._size == self._session_end:
            self._size = self._session_start
            self.sessions.pop()
            with suppress(OSError):
                os.ftruncate(self._file, self._size)

    def discard(self) -> None:
        """Removes the journal, and closes it."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Closes the journal, so that another process can open it. May be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _lines(path: Path) -> Iterator[tuple[int, int, records.AnyLine]]:
    """Yields (offset, offset of the next line, line) for every whole line.

    Raises:
        JournalDamaged: the file is no sweep's journal, or damaged before its end.
    """
    offset = 0
    with path.open("rb") as file:
        for number, data in enumerate(file, 1):
            if not data.endswith(b"\n"):
                return
            yield offset, offset + len(data), _decoded(path, number, data)
            offset += len(data)


def _decoded(path: Path, number: int, data: bytes) -> records.AnyLine:
    """Decodes line `number` (from 1) of a journal. Raises JournalDamaged."""
    try:
        line: records.AnyLine = records.decode_line(data)
        if number == 1 and not isinstance(line, records.SweepOpened):
            raise msgspec.ValidationError("the first line names no sweep")
    except ValueError:
        what = f"{path}: line {number} is no line of a sweep's journal"
        if number == 1:
            raise NoJournal(what, "move the file elsewhere") from None
        raise JournalDamaged(what, "remove that line, or move the file elsewhere") from None
    return line


def read_lines(path: Path) -> Iterator[records.AnyLine]:
    """Returns all whole lines of a journal, in order. Another process may be writing it.

    Raises:
        OSError: it cannot be read.
        JournalDamaged: it is no sweep's journal.
    """
    return (line for _, _, line in _lines(path))


class JournalReader:
    """Follows a journal that another process writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._lines = 0

    def more(self, most: int = 2000) -> list[records.AnyLine]:
        """Returns the lines that were added since the last call, at most `most`. Blocks for milliseconds.

        Raises:
            OSError: the file is gone.
            JournalDamaged: the next line is not a journal's; earlier calls have returned all lines before it.
        """
        found: list[records.AnyLine] = []
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for data in file:
                if not data.endswith(b"\n") or len(found) >= most:
                    break
                try:
                    found.append(_decoded(self.path, self._lines + 1, data))
                except JournalDamaged:
                    if found:
                        break  # the next call begins with it
                    raise
                self._offset += len(data)
                self._lines += 1
        return found


def sweep_path(folder: Path, name: str) -> Path:
    """Returns the path of the journal of a sweep of this name.

    Raises:
        UsageError: the name cannot be a sweep's name.
    """
    if not name or len(name) > 80 or not all(c.isalnum() or c in "-_." for c in name) or name.startswith("."):
        raise UsageError(f"{name!r} cannot be a sweep's name", "use letters, digits, - _ and .")
    return folder / f"{name}.jsonl"


def require_sweep(path: Path) -> None:
    """Raises UsageError if there is no such journal; its advice names the existing sweeps."""
    if not path.exists():
        names = ", ".join(other.stem for other in journals(path.parent))
        raise UsageError(
            f"there is no sweep {path.stem!r}",
            f"choose from {names}" if names else "`pkb-arena sweep --players ...` makes one",
        )


def journals(folder: Path) -> list[Path]:
    """Returns the journals of all sweeps, the one that was written last at the end."""
    found = [(_written_at(path), path) for path in files_in(folder, ".jsonl")]
    return [path for _, path in sorted(found)]


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return path.lstat().st_mtime  # a broken link: opening it reports the error


def last_plan(path: Path) -> records.SweepSession | None:
    """Returns the last session of a journal; None if there is none, or the file is gone.

    Raises:
        PathRefused: the file cannot be read.
        JournalDamaged: the file is no journal, or has an unreadable line.
    """
    last = None
    try:
        for line in read_lines(path):
            if isinstance(line, records.SweepSession):
                last = line
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PathRefused(f"cannot read {path}: {why(error)}", "make it readable, or move it elsewhere") from None
    return last


def new_name() -> str:
    """Returns a name for a new sweep. Names sort by time, like the ids of runs."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def plan_to_go_on(paths: Paths, name: str) -> tuple[str, SweepPlan]:
    """Returns the name and the plan of the sweep to resume; the newest one if no name is given.

    Raises:
        UsageError: there is no such sweep.
        PathRefused, JournalDamaged: the journal of this name, or the newest one, cannot be read.
    """
    path = sweep_path(paths.sweeps, name) if name else None
    found = [path] if path is not None and path.exists() else journals(paths.sweeps) if path is None else []
    for candidate in reversed(found):
        with suppress(NoJournal) if name else nullcontext():
            if (session := last_plan(candidate)) is not None:
                return candidate.stem, session.plan
    if found and name:
        raise UsageError(f"{found[0]} is no sweep's journal, or no session of it began", "choose another --name")
    raise UsageError(
        f"there is no sweep {name!r}" if name else "there is no sweep to resume",
        "`pkb-arena sweep --players baseline,house --problems all` begins one",
    )


def same_plan(paths: Paths, plan: SweepPlan) -> str:
    """Returns the name of the newest sweep with exactly this plan; empty if there is none.

    Raises:
        PathRefused, JournalDamaged: a journal that may have this plan cannot be read.
    """
    for path in reversed(journals(paths.sweeps)):
        session = last_plan(path)
        if session is not None and session.plan == plan:
            return path.stem
    return ""


def open_journal(paths: Paths, name: str, resume: bool) -> SweepJournal:
    """Opens the journal of this name for writing.

    Raises:
        UsageError: the journal exists and `resume` is False.
        MachineError: another process has it open, it cannot be written, or it is no sweep's journal.
    """
    path = sweep_path(paths.sweeps, name)
    if path.exists() and not resume:
        raise UsageError(f"there is a sweep {name} already", "continue it with --resume, or choose another --name")
    return SweepJournal(path, name)


def begin_session(journal: SweepJournal, plan: SweepPlan, workers: Sequence[Worker]) -> None:
    """Writes the line of a new session: its plan and its machines.

    Raises:
        MachineError: it could not be written.
    """
    machines = list(dict.fromkeys(worker.machine for worker in workers))
    version = installed_version("pkb-arena") or ""
    journal.append(records.SweepSession(at=time.time(), plan=plan, machines=machines, arena=version))
