"""A sweep's journal: one line per result, synced to disk before the next result is written."""

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from fcntl import LOCK_EX, LOCK_NB
from pathlib import Path

from arena.errors import MachineError, UsageError, why
from arena.machine.facts import installed_version
from arena.models.budget import Spent
from arena.paths import FULL, Paths, files_in, make_folder, unwritable
from arena.records.json_lines import Follower, LineFile, RawLine, encode, whole_lines
from arena.sweep import records
from arena.sweep.queue import Worker
from arena.sweep.records import SweepPlan

UNREADABLE_ADVICE = "make it readable, or move it elsewhere"


class JournalDamaged(MachineError):
    """A file in the folder of sweeps cannot be read, is no journal, or has an unreadable line."""


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
            self._file = LineFile(path, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise MachineError(
                f"another process is at work on the sweep {name}",
                "wait for it, watch it in the app (c in the list of problems), or choose another --name",
            ) from None
        except OSError as error:
            raise unwritable(path.parent, error) from None
        self._session_start = self._session_end = -1
        """Offsets of the line of this process's session, and of the line after it; -1 before it begins."""
        self._done: dict[tuple[str, str], str] = {}
        """Key of the last result, by the digests of its cell and its machine."""
        self._written: dict[str, int] = {}
        """Offset of the `Written` line, by the digest of its cell."""
        self.spent = Spent()
        """Spent by all sessions so far. Unfinished requests of a killed session are not counted."""
        self.sessions: list[records.SweepSession] = []
        try:
            for line in whole_lines(self.path):
                self._note(line.offset, _decoded(self.path, line))
            if not self._file.size:
                self.append(records.SweepOpened(at=time.time(), name=name))
        except BaseException:
            if not self._file.size:
                path.unlink()  # else neither a new sweep nor --resume could take this name
            self.close()
            raise

    def _note(self, offset: int, line: records.AnyLine) -> None:
        match line:
            case records.CellResult():
                if line.final:
                    self._done[line.cell.digest, line.machine] = line.key
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
        offset = self._file.size
        try:
            self._file.append(encode(line))
        except OSError as error:
            raise MachineError(
                f"cannot write {self.path}: {error.strerror}",
                FULL + (", then continue with --resume; all results so far are in the file" if offset else ""),
            ) from None
        self._note(offset, line)
        if isinstance(line, records.SweepSession):
            self._session_start, self._session_end = offset, self._file.size

    def is_done(self, cell: records.Cell, sha256: str, machine: str) -> bool:
        """Whether the last result of a cell on a machine is that of this kernel."""
        return self._done.get((cell.digest, machine)) == cell.key(sha256, machine)

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
        if not self.sessions:
            self.discard()
        self.close()

    def withdraw_session(self) -> None:
        """Removes the line of the last session if no line follows it. `leave` then discards a new journal."""
        if self.sessions and self._file.size == self._session_end:
            self.sessions.pop()
            with suppress(OSError):
                self._file.cut(self._session_start)

    def discard(self) -> None:
        """Removes the journal, and closes it."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Closes the journal, so that another process can open it. May be called twice."""
        self._file.close()


def _decoded(path: Path, line: RawLine) -> records.AnyLine:
    """Decodes a line of a journal. Raises JournalDamaged."""
    try:
        found = records.decode_line(line.data)
        if line.number == 1 and not isinstance(found, records.SweepOpened):
            raise ValueError("the first line names no sweep")
    except ValueError:
        what = f"{path}: line {line.number} is no line of a sweep's journal"
        if line.number == 1:
            raise NoJournal(what, "move the file elsewhere") from None
        raise JournalDamaged(what, "remove that line, or move the file elsewhere") from None
    return found


def read_lines(path: Path) -> Iterator[records.AnyLine]:
    """Returns all whole lines of a journal, in order. Another process may be writing it.

    Raises:
        JournalDamaged: it cannot be read, or is no sweep's journal.
    """
    try:
        for line in whole_lines(path):
            yield _decoded(path, line)
    except OSError as error:
        raise JournalDamaged(f"cannot read {path}: {why(error)}", UNREADABLE_ADVICE) from None


def new_lines(follower: Follower) -> list[records.AnyLine]:
    """Returns the lines that another process has added since the last call. Blocks for milliseconds.

    Raises:
        OSError: the file is gone.
        JournalDamaged: the next line is not a journal's; earlier calls have returned all lines before it.
    """
    found: list[records.AnyLine] = []
    try:
        for line in follower.more():
            found.append(_decoded(follower.path, line))
    except JournalDamaged:
        if not found:
            raise
    return found


def sweep_path(folder: Path, name: str) -> Path:
    """Returns the path of the journal of a sweep of this name.

    Raises:
        UsageError: the name cannot be a sweep's name.
    """
    if not name or len(name) > 80 or not all(c.isalnum() or c in "-_." for c in name) or name.startswith("."):
        raise UsageError(f"{name!r} cannot be a sweep's name", "use letters, digits, - _ and .")
    return folder / f"{name}.jsonl"


def chosen_journals(folder: Path, names: Sequence[str]) -> list[Path]:
    """Returns the journals of the sweeps of these names; without names, of all sweeps.

    Raises:
        UsageError: there is no such sweep. The advice names the existing ones.
    """
    chosen = [sweep_path(folder, name) for name in names]
    if missing := next((path for path in chosen if not path.exists()), None):
        known = ", ".join(path.stem for path in journals(folder))
        raise UsageError(
            f"there is no sweep {missing.stem!r}",
            f"choose from {known}" if known else "`pkb-arena sweep --players ...` makes one",
        )
    return chosen or journals(folder)


def journals(folder: Path) -> list[Path]:
    """Returns the journals of all sweeps, the one that was written last at the end. A link counts by its own time."""
    return sorted(files_in(folder), key=lambda path: (path.lstat().st_mtime, path))


def last_plan(path: Path) -> records.SweepSession | None:
    """Returns the last session of a journal; None if there is none, or the file is gone.

    Raises as `read_lines`.
    """
    last = None
    for line in read_lines(path) if path.exists() else ():
        if isinstance(line, records.SweepSession):
            last = line
    return last


def new_name() -> str:
    """Returns a name for a new sweep. Names sort by time, like the ids of runs."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def plan_to_go_on(paths: Paths, name: str) -> tuple[str, SweepPlan]:
    """Returns the name and the plan of the sweep to resume; the newest one if no name is given.

    Raises:
        UsageError: there is no such sweep.
        MachineError: the journal of this name, or the newest one, cannot be read.
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
        MachineError: a journal that may have this plan cannot be read.
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
