"""A world's folder outside its jail. The referee locks it, so that unlocked folders can be removed as leftovers."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

PREFIX = "pkb-arena-world-"
YOUNG_SECONDS = 60.0
"""A younger folder may not have its lock yet."""


class WorldFolder:
    """One folder, from its creation until `remove`."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Deletes the folder with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_leftovers() -> int:
    """Removes this user's folders whose referee was killed. Returns their number."""
    removed = 0
    for path in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            facts = path.lstat()
            if facts.st_uid != os.geteuid() or time.time() - facts.st_mtime < YOUNG_SECONDS:
                continue
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
                removed += 1
            finally:
                os.close(folder)
    return removed
