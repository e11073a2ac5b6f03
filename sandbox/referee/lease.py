"""Leases of devices, so that two arenas of one machine never time on the same device at once.

A lease is a lock on one file for each device, held by the referee's process. It ends with the process. Who holds or waits writes
a note, which decides whose turn is next: people before sweeps, and those before measuring that goes on in the background.

Other users are not trusted. A file must lie in a folder that only root or its owner can change, notes are small plain files of
bounded number, and a note counts only for a living process of the user who owns it. A false note can delay others by a second.
"""

import contextlib
import fcntl
import math
import os
import pwd
import stat
import tempfile
import time
from collections.abc import Iterable
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from sandbox.machine import processes
from sandbox.machine.devices import kind_of
from sandbox.machine.locked_folder import open_plain
from sandbox.protocol.events import LeaseHolder, Setting

FOLDER = Path(tempfile.gettempdir())
PREFIX = "pkb-arena-"
MOST_FILES, MOST_NOTES, MOST_BYTES = 2048, 32, 4096
"""Files of each user that are looked at, notes of living processes that are read, and their size."""
PATIENCE_S = 1.0
"""Who waits in front has so long to take a free lock; then its note no longer counts."""
CLOCK_STEP_S = 60.0
"""By so much the clock may have been set back since a process started."""
IDLE_SHARE, WATCHED_S = 0.02, 5.0
"""A holder whose processes use less than this share of a core, for so long, is idle."""
LOCKS = Path("/proc/locks")


class Urgency(IntEnum):
    """Who goes first."""

    PERSON = 0
    SWEEP = 1
    BACKGROUND = 2
    """Measuring that goes on after the verdict."""


class Note(msgspec.Struct, frozen=True):
    """What a process that holds or waits says about itself."""

    devices: Annotated[list[str], msgspec.Meta(max_length=64)]
    urgency: Annotated[int, msgspec.Meta(ge=0, le=2)]
    since: Annotated[float, msgspec.Meta(ge=0, le=1e11)]
    """Seconds since the epoch."""
    holds: bool = False
    problem: Annotated[str, msgspec.Meta(max_length=200)] = ""
    expected_s: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    """Seconds for which it usually holds; 0: not known."""


class Applicant(NamedTuple):
    """A living process that holds or waits, with its note. The kernel tells its user and its number."""

    uid: int
    pid: int
    note: Note

    @property
    def place(self) -> tuple[int, float, int]:
        """The smaller, the earlier its turn."""
        return (self.note.urgency, self.note.since, self.pid)

    @property
    def holder(self) -> LeaseHolder:
        return LeaseHolder(self.pid, _user(self.uid), self.note.problem, self.note.since)


def devices_of(setting: Setting) -> list[str]:
    """The devices of a setting: its GPUs by the driver's numbers, or all cores."""
    return kind_of(setting.device).lease_names(setting.world)


class Lease:
    """A lease of several devices. One referee holds at most one."""

    def __init__(
        self, devices: Iterable[str], folder: Path = FOLDER, urgency: Urgency = Urgency.PERSON, expected_s: float = 0.0
    ) -> None:
        """folder: of this user or of root, and with the sticky bit if others may write to it. expected_s: as in `Note`.

        Raises:
            OSError: another user could replace the locks, or a lock cannot be opened.
        """
        _require_safe(folder)
        self._folder = folder
        self._paths = {_plain(device): folder / f"{PREFIX}lease-{_plain(device)}" for device in sorted(devices)}
        self._files = {name: _open(path) for name, path in self._paths.items()}
        self.urgency = urgency
        self._expected_s = expected_s
        self._since = time.time()
        self._problem = ""
        self._free_since: float | None = None
        self._ignored: set[tuple[int, int]] = set()
        self._watched: dict[int, tuple[float, float]] = {}
        """CPU seconds of a holder when its watch began, and that time."""
        self.passed = ""
        """Whose idle lock was passed by; empty: nobody's."""

    # --- taking and giving back ----------------------------------------------------------------------------------

    def take(self, problem: str = "") -> bool:
        """Takes all devices or none, without waiting; returns whether it did. `problem` is shown to those who wait."""
        self._problem = problem
        if not self._lock():
            self._note(problem)
            return False
        if ahead := [each for each in self._others() if not each.note.holds and each.place < self._place]:
            now = time.monotonic()
            self._free_since = self._free_since or now
            if now - self._free_since < PATIENCE_S:
                self._unlock()
                self._note(problem)
                return False
            self._ignored |= {(each.uid, each.pid) for each in ahead}
        self._free_since = None
        self._note(problem, holds=True)
        return True

    def give_way(self) -> None:
        """Gives the devices back to somebody more urgent. `take` takes them again, in the old place."""
        self._note(self._problem)
        self._unlock()

    def close(self) -> None:
        """Releases the devices, for good."""
        with contextlib.suppress(OSError):
            (_notes(self._folder, os.getuid()) / str(os.getpid())).unlink()
        for file in self._files.values():
            os.close(file)
        self._files = {}

    def pass_by_idle(self) -> bool:
        """Goes on without the lock if all its holders have been idle while this was called for WATCHED_S. Returns whether.

        `passed` then names them.
        """
        holders = self._holders()
        now = time.monotonic()
        for pid in holders:
            used = processes.cpu_seconds_of_all(processes.tree(pid))
            before, began = self._watched.setdefault(pid, (used, now))
            if used - before > IDLE_SHARE * max(now - began, WATCHED_S):
                self._watched[pid] = (used, now)
        if not holders or any(now - self._watched[pid][1] < WATCHED_S for pid in holders):
            return False
        self.passed = ", ".join(
            f"process {pid} of {_user(uid)}" for pid in sorted(holders) if (uid := _uid_of(pid)) is not None
        )
        return bool(self.passed)

    def _lock(self) -> bool:
        for name, path in self._paths.items():
            file = self._files[name]
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _is_at(file, path):  # its owner has replaced the file: a lock on the old one keeps nobody out
                    replacement = _open(path)
                    os.close(file)
                    self._files[name] = file = replacement
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if not _is_at(file, path):
                        raise BlockingIOError
            except BlockingIOError:
                self._unlock()
                return False
        return True

    def _unlock(self) -> None:
        for file in self._files.values():
            fcntl.flock(file, fcntl.LOCK_UN)

    # --- the queue -----------------------------------------------------------------------------------------------

    def holder(self) -> LeaseHolder | None:
        """The process that holds one of the devices; None if it has left no note."""
        holders = self._holders()  # a note says that it holds only milliseconds after the lock
        users = processes.user_ids()
        held = [each.holder for uid in users for each in _applicants(self._folder, uid) if each.pid in holders]
        return max(held, key=lambda holder: holder.since, default=None)

    def place(self) -> tuple[int, int]:
        """(place in the queue, from 1; number of those who wait)."""
        waiting = [each for each in self._others() if not each.note.holds]
        return 1 + sum(each.place < self._place for each in waiting), 1 + len(waiting)

    def is_wanted(self) -> bool:
        """Whether somebody more urgent than this holder waits."""
        return any(not each.note.holds and each.note.urgency < self.urgency for each in self._others())

    @property
    def _place(self) -> tuple[int, float, int]:
        return (self.urgency, self._since, os.getpid())

    def _others(self) -> list[Applicant]:
        """All other living processes that hold or wait for one of these devices, in no order. Takes milliseconds."""
        found = []
        for uid in processes.user_ids():
            found += [
                each
                for each in _applicants(self._folder, uid)
                if each.pid != os.getpid()
                and (uid, each.pid) not in self._ignored
                and not self._paths.keys().isdisjoint(each.note.devices)
            ]
        return found

    def _holders(self) -> set[int]:
        """The processes that hold one of the locks, as the kernel tells; empty if it does not."""
        return lock_holders(os.fstat(file).st_ino for file in self._files.values()) - {os.getpid()}

    def _note(self, problem: str, holds: bool = False) -> None:
        """Writes this process's note. Without one it waits and holds as well, but unseen."""
        folder = _notes(self._folder, os.getuid())
        note = Note(list(self._paths), self.urgency, self._since, holds, problem[:200], self._expected_s)
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o755)
            if folder.lstat().st_uid != os.getuid():
                return
            part = folder / f".{os.getpid()}"
            part.write_bytes(msgspec.json.encode(note))
            part.replace(folder / str(os.getpid()))


def queue(folder: Path = FOLDER) -> list[Applicant]:
    """Returns all living processes that hold or wait for a device of this machine: holders first, then by turn."""
    found = [each for uid in processes.user_ids() for each in _applicants(folder, uid)]
    return sorted(found, key=lambda each: (not each.note.holds, each.place))


def lock_holders(inodes: Iterable[int]) -> set[int]:
    """Returns the processes that hold a lock on one of these files, as the kernel tells; empty if it does not."""
    wanted, found = set(inodes), set()
    with contextlib.suppress(OSError):
        for line in LOCKS.read_text().splitlines():
            fields = line.split()
            if len(fields) >= 6 and fields[1] == "FLOCK" and fields[4].isdigit():
                inode = fields[5].rpartition(":")[2]
                if inode.isdigit() and int(inode) in wanted:
                    found.add(int(fields[4]))
    return found


def _notes(folder: Path, uid: int) -> Path:
    return folder / f"{PREFIX}notes-{uid}"


def _applicants(folder: Path, uid: int) -> list[Applicant]:
    """The living processes of a user that have left a note, from at most MOST_NOTES of its files."""
    notes = _notes(folder, uid)
    found = []
    with contextlib.suppress(OSError):
        if notes.lstat().st_uid != uid or not stat.S_ISDIR(notes.lstat().st_mode):
            return []
        with os.scandir(notes) as entries:
            pids = [int(entry.name) for entry in islice(entries, MOST_FILES) if entry.name.isdigit()]
        for pid in islice((pid for pid in pids if _uid_of(pid) == uid), MOST_NOTES):  # killed processes leave notes
            note = _read(notes / str(pid))
            if note is not None and _began(pid) - CLOCK_STEP_S < note.since <= time.time() + 1:
                found.append(Applicant(uid, pid, note))
    return found


def _read(path: Path) -> Note | None:
    """The note in a small plain file; None for anything else."""
    with (
        contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError, ValueError),
        open(open_plain(path, os.O_NOFOLLOW), "rb") as file,
    ):
        note = msgspec.json.decode(file.read(MOST_BYTES), type=Note)
        return note if math.isfinite(note.since) else None
    return None


def _uid_of(pid: int) -> int | None:
    """The user of a living process."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except (OSError, OverflowError):
        return None


def _began(pid: int) -> float:
    """When a process started, in seconds since the epoch: a note that is older is of another process of that number."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return math.inf
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _plain(device: str) -> str:
    return "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in device)


def _require_safe(folder: Path) -> None:
    """Raises OSError if another user could replace files in a folder."""
    found = folder.stat()
    shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if found.st_uid not in (0, os.getuid()) or (shared and not found.st_mode & stat.S_ISVTX):
        raise PermissionError(f"{folder} must belong to root or to you, and have the sticky bit; set TMPDIR to another")


def _is_at(file: int, path: Path) -> bool:
    """Whether an open file is the one at a path."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(file), path.lstat())
    return False


def _open(path: Path) -> int:
    """Opens a lock file. O_CREAT is refused for another user's file in a shared folder, so it comes second.

    Raises:
        OSError: it cannot be opened, or is no plain file.
    """
    try:
        return open_plain(path, os.O_NOFOLLOW)
    except FileNotFoundError:
        file = open_plain(path, os.O_NOFOLLOW | os.O_CREAT)
        os.fchmod(file, 0o644)
        return file
