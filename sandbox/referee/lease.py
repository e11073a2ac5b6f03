"""Leases of devices: several arenas on one machine never time kernels on the same device at once.

A lease is a lock on one file for each device, held by the referee's process. It ends with the process.
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
    """Names of what a world of this setting runs on: its GPUs as the driver counts them, or all the cores."""
    return kind_of(setting.device).lease_names(setting.world)


class Lease:
    """Several devices for one match. Not for threads: one referee, one lease at a time."""

    def __init__(self, devices: Iterable[str], folder: Path = FOLDER) -> None:
        """folder: shared by all users of this machine; made where it is missing.

        Raises:
            OSError: the folder or a file in it cannot be opened.
        """
        if not folder.exists():
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                folder.chmod(0o1777)
        self._files = [_open(folder / _plain(device)) for device in sorted(devices)]

    def take(self) -> bool:
        """All of the devices, or none of them; does not wait."""
        for taken, file in enumerate(self._files):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                for other in self._files[:taken]:
                    fcntl.flock(other, fcntl.LOCK_UN)
                return False
        return True

    def close(self) -> None:
        """Gives back what was taken."""
        for file in self._files:
            os.close(file)
        self._files = []


def _plain(device: str) -> str:
    return "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in device)


def _open(path: Path) -> int:
    """A file that is there is opened without O_CREAT: in a shared folder that may be refused for somebody else's."""
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    os.fchmod(file, 0o644)
    return file
