"""Leases of devices, so that two arenas of one machine never time on the same device at once.

A lease locks one file per device. It ends with the referee's process.
"""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Setting

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
        self._files = [_open(folder / _plain(device)) for device in sorted(devices)]

    def take(self) -> bool:
        """Takes all devices or none. Returns at once whether it took them."""
        for taken, file in enumerate(self._files):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                for other in self._files[:taken]:
                    fcntl.flock(other, fcntl.LOCK_UN)
                return False
        return True

    def close(self) -> None:
        """Ends the lease."""
        for file in self._files:
            os.close(file)
        self._files = []


def _plain(device: str) -> str:
    return "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in device)


def _open(path: Path) -> int:
    """Opens a lock file. O_CREAT is refused for another user's file in a shared folder, so it comes second."""
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    os.fchmod(file, 0o644)
    return file
