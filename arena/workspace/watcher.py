"""Detects every save of a kernel by any editor: of its file, or of any file in its folder.

Editors replace files (vim, VS Code, `os.replace`), so the folder is watched, not the file. Contents are
compared, so a touch or a rewrite of the same text does not count as a save.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from arena.errors import UsageError
from arena.workspace.kernel_folder import main_file
from arena.workspace.kernels import KernelFile, read_kernel

DEBOUNCE_MS = 100
STEP_MS = 20
"""Changes are collected until none came for STEP_MS, at most for DEBOUNCE_MS: 25 ms from save to event."""
RECHECK_MS = 1_000
"""Interval of reads without an event, for folders that are removed and file systems without inotify."""
GRACE_S = 0.8
"""Seconds for which a file must stay empty or invalid until that is reported: editors that write in place truncate it first."""


class KernelWatcher:
    """Watches one kernel. `async for save in watcher` yields each new content once: a kernel or an error."""

    def __init__(self, path: Path, known: str = "") -> None:
        """known: SHA-256 of the content that is not reported."""
        self.path = path
        self._in_folder = path.is_dir()
        self._known = known
        self._own: list[str] = []
        """SHA-256 of contents that this process writes and that were not read back yet, in order."""
        self._stop = asyncio.Event()

    def wrote(self, sha256: str) -> None:
        """Registers content that this process is about to write, so that it is not reported."""
        self._own.append(sha256)

    def stop(self) -> None:
        """Requests the end of the iteration."""
        self._stop.set()

    async def __aiter__(self) -> AsyncIterator[KernelFile | UsageError]:
        since: float | None = None  # when the file was found empty or invalid
        async for _ in self._hints():
            save = await self._read()
            doubtful = isinstance(save, UsageError) or (save is not None and not save.text)
            since = (since or time.monotonic()) if doubtful else None
            if since is not None and time.monotonic() - since < GRACE_S:
                continue
            if save is not None and self._is_news(_identity(save, self.path)):
                yield save

    def _is_news(self, sha256: str) -> bool:
        own, known = sha256 in self._own, sha256 == self._known
        if own:  # even if known: a later save of the same content may come from another program
            del self._own[: self._own.index(sha256) + 1]  # earlier ones were overwritten before they were read
        self._known = sha256
        return not own and not known

    async def _hints(self) -> AsyncIterator[None]:
        """Yields when something may have changed: after an event in the folder, and every second."""
        from watchfiles import awatch

        folder = self.path if self._in_folder else self.path.parent
        while not self._stop.is_set():
            with suppress(FileNotFoundError, RuntimeError, OSError):
                async for _ in awatch(
                    folder,
                    watch_filter=None,
                    debounce=DEBOUNCE_MS,
                    step=STEP_MS,
                    stop_event=self._stop,
                    rust_timeout=RECHECK_MS,
                    yield_on_timeout=True,
                    recursive=self._in_folder,
                ):
                    yield
                    if not folder.is_dir():
                        break  # the folder was replaced: watch the new one
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), RECHECK_MS / 1_000)
            yield

    async def _read(self) -> KernelFile | UsageError | None:
        try:
            return await asyncio.to_thread(read_kernel, self.path) if self._in_folder else read_kernel(self.path)
        except UsageError as error:
            return error if main_file(self.path).is_file() else None  # between deletion and re-creation


def _identity(save: KernelFile | UsageError, path: Path) -> str:
    """Returns the hash of a kernel; for an unreadable kernel, its modification time and the error."""
    if isinstance(save, KernelFile):
        return save.sha256
    with suppress(OSError):
        return f"{main_file(path).stat().st_mtime_ns} {save}"
    return str(save)
