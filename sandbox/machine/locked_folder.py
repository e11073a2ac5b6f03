"""Files in folders that others use as well: plain files, and a temporary folder with a lock.

A temporary folder without its lock is a leftover of a killed process, and can be removed.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Self

WORLD, SELFTEST, CANARY, AGENT, SPECTATOR = (
    f"pkb-{name}-" for name in ("arena-world", "selftest", "canary", "agent", "spectator")
)
"""Prefixes of the names of folders for temporary files."""
YOUNG_SECONDS = 60.0
"""A younger folder may not have its lock yet."""


def open_plain(path: Path, flags: int = 0) -> int:
    """Opens a plain file for reading; returns its descriptor. Never waits, as for a pipe that nobody writes into.

    flags: O_NOFOLLOW refuses a link, O_CREAT makes a missing file.

    Raises:
        OSError: it cannot be opened, or is no plain file.
    """
    if flags & os.O_NOFOLLOW and path.is_symlink():
        raise OSError(errno.ELOOP, "no plain file", str(path))
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags, 0o644)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "no plain file", str(path))
    return file


class LockedFolder:
    """One folder, from its creation until `remove` or the end of the block. Its lock ends with this process."""

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        """parent: the folder that it is made in; None: that of temporary files. Raises OSError."""
        self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Deletes the folder with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def remove_all_leftovers(killed: str = "") -> int:
    """Removes this user's folders whose process was killed. Returns their number. killed: see `remove_leftovers`."""
    places = {Path(os.path.expanduser("~")), Path(__file__).parents[3]}
    canaries = sum(remove_leftovers(place, f".{CANARY}", killed=killed) for place in places)
    prefixes = (WORLD, SELFTEST, CANARY, AGENT, SPECTATOR)
    return canaries + remove_leftovers(Path(tempfile.gettempdir()), *prefixes, killed=killed)


def remove_leftovers(parent: Path, *prefixes: str, killed: str = "") -> int:
    """Removes this user's unlocked folders with these prefixes. Returns their number.

    killed: the process id of an ended process; only its folders are removed, and young ones, too.
    """
    removed = 0
    names = f"{killed}-*" if killed else "*"
    for path in (path for prefix in prefixes for path in parent.glob(prefix + names)):
        with contextlib.suppress(OSError):
            facts = path.lstat()
            if facts.st_uid != os.geteuid() or (not killed and abs(time.time() - facts.st_mtime) < YOUNG_SECONDS):
                continue
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
                removed += 1
            finally:
                os.close(folder)
    return removed
