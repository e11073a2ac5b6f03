"""The lock of a workspace: two apps in one workspace would overwrite each other's kernels."""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from arena.errors import WorkspaceLocked
from arena.paths import HOME_VARIABLE, make_folder, unwritable


class WorkspaceLock:
    """Held from creation until `release` or the end of the process, however it ends."""

    def __init__(self, root: Path) -> None:
        """
        Raises:
            WorkspaceLocked: another process holds it; the message names it.
            FolderUnwritable: the lock file cannot be written.
        """
        make_folder(root)
        path = root / ".lock"
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unwritable(root, error) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(self._file)
            os.close(self._file)
            raise WorkspaceLocked(
                f"another pkb-arena{holder} has the workspace {root} open",
                f"close it, or set {HOME_VARIABLE} to another folder for a second one",
            ) from None
        with suppress(OSError):  # the note is a courtesy; a full disk does not stop the app
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f'{{"pid": {os.getpid()}, "since": {time.time()}}}'.encode(), 0)

    def release(self) -> None:
        """Lets another app in. May be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _holder(file: int) -> str:
    import json

    try:
        note = json.loads(os.pread(file, 1024, 0))
        since = time.strftime("%H:%M", time.localtime(float(note["since"])))
        return f" (process {int(note['pid'])}, since {since})"
    except (ValueError, KeyError, TypeError, OSError):
        return ""
