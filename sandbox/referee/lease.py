"""Leases of devices, so that two arenas of one machine never time on the same device at once.

A lease is a lock on one file for each device, held by the referee's process. It ends with the process. The holder is
written to a file beside the lock, one for each user, because in a shared folder nobody can write to another user's
file.
"""

import contextlib
import fcntl
import os
import pwd
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from sandbox.machine.devices import kind_of
from sandbox.protocol.events import LeaseHolder, Setting

FOLDER = Path(tempfile.gettempdir()) / "pkb-arena-leases"


def devices_of(setting: Setting) -> list[str]:
    """The devices of a setting: its GPUs by the driver's numbers, or all cores."""
    return kind_of(setting.device).lease_names(setting.world)


class Lease:
    """A lease of several devices. One referee holds at most one."""

    def __init__(self, devices: Iterable[str], folder: Path = FOLDER) -> None:
        """folder: shared by all users of this machine; created if missing.

        Raises:
            OSError: the folder or a file in it cannot be opened.
        """
        if not folder.exists():
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                folder.chmod(0o1777)
        self._paths = [folder / _plain(device) for device in sorted(devices)]
        self._files = [_open(path) for path in self._paths]
        self._notes: list[Path] = []

    def take(self, problem: str = "") -> bool:
        """Takes all devices or none, without waiting; returns whether it did. `problem` is shown to those who wait."""
        for taken, file in enumerate(self._files):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                for other in self._files[:taken]:
                    fcntl.flock(other, fcntl.LOCK_UN)
                return False
        self._note(problem)
        return True

    def holder(self) -> LeaseHolder | None:
        """The process that holds one of the devices, by its own note; None if there is no note."""
        found = [_read(note) for path in self._paths for note in path.parent.glob(f"{path.name}.*")]
        alive = [each for each in found if each is not None and Path(f"/proc/{each.pid}").exists()]
        return max(alive, key=lambda each: each.since, default=None)

    def _note(self, problem: str) -> None:
        user = os.getuid()
        with contextlib.suppress(OSError, KeyError):
            holder = LeaseHolder(os.getpid(), pwd.getpwuid(user).pw_name, problem, time.time())
            for path in self._paths:
                note = path.with_name(f"{path.name}.{user}")
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                with open(os.open(note, flags, 0o644), "wb") as file:
                    file.write(msgspec.json.encode(holder))
                self._notes.append(note)

    def close(self) -> None:
        """Releases the devices."""
        for note in self._notes:
            with contextlib.suppress(OSError):
                note.unlink()
        self._notes = []
        for file in self._files:
            os.close(file)
        self._files = []


def _plain(device: str) -> str:
    return "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in device)


def _read(note: Path) -> LeaseHolder | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.suppress(OSError, msgspec.MsgspecError), open(os.open(note, flags), "rb") as file:
        return msgspec.json.decode(file.read(4096), type=LeaseHolder)
    return None


def _open(path: Path) -> int:
    """Opens a lock file. O_CREAT is refused for another user's file in a shared folder, so it comes second."""
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    os.fchmod(file, 0o644)
    return file
