"""Workspace locks, one per problem, so that two apps do not overwrite each other's kernels."""

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from arena.errors import KernelsLocked
from arena.paths import make_folder, unwritable


class KernelLocks:
    """The locks of problems whose kernels this process edits. The system releases them when it ends."""

    def __init__(self, root: Path) -> None:
        self._folder = root / ".locks"
        self._held: dict[str, tuple[int, int]] = {}
        """By problem: the descriptor of the lock file, and the number of `take` calls not yet released."""

    def take(self, stem: str) -> None:
        """Locks the kernels of a problem. Every call needs its own `release`.

        Raises:
            KernelsLocked: another process has locked them; the message names it.
            FolderUnwritable: the lock file cannot be written.
        """
        file, count = self._held.get(stem, (-1, 0))
        self._held[stem] = (self._lock(stem) if not count else file, count + 1)

    def release(self, stem: str) -> None:
        """Undoes one `take`. The last one unlocks the problem's kernels for other apps."""
        file, count = self._held.pop(stem)
        if count > 1:
            self._held[stem] = (file, count - 1)
        else:
            os.close(file)

    def _lock(self, stem: str) -> int:
        make_folder(self._folder)
        try:
            file = os.open(self._folder / stem, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unwritable(self._folder, error) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(file)
            os.close(file)
            raise KernelsLocked(
                f"another pkb-arena{holder} edits the kernels of {stem}", "close the problem there"
            ) from None
        with suppress(OSError):  # the note is optional: a full disk must not stop the app
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps({"pid": os.getpid(), "user": _user(), "since": time.time()}).encode(), 0)
        return file


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in containers
        return str(os.getuid())


def _holder(file: int) -> str:
    try:
        note = json.loads(os.pread(file, 1024, 0))
        since = time.strftime("%H:%M", time.localtime(float(note["since"])))
        return f" (process {int(note['pid'])}, {note['user']}, since {since})"
    except (ValueError, KeyError, TypeError, OSError):
        return ""
