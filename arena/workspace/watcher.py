"""Detects every save of a kernel file by any editor.

Editors replace files (vim, VS Code, `os.replace`), so the folder is watched, not the file; contents are
compared, so a touch or a rewrite of the same text is no save.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from arena.errors import UsageError
from arena.workspace.kernels import KernelFile, read_kernel

DEBOUNCE_MS = 100
STEP_MS = 20
"""Changes are gathered until none came for STEP_MS, at most DEBOUNCE_MS: 25 ms from save to event."""
RECHECK_MS = 1_000
"""Read anew this often even without an event: for folders that vanish, and file systems without inotify."""
EMPTY_GRACE_S = 0.06
"""An editor that writes in place truncates first: an empty file is looked at again before it counts."""


class KernelWatcher:
    """Watches one kernel file. `async for kernel in watcher` yields each new content once."""

    def __init__(self, path: Path, known: str = "") -> None:
        """`known` is the SHA-256 of the content that is no news."""
        self.path = path
        self._known = known
        self._own: list[str] = []
        """Contents that this process writes itself and that were not seen yet, in order."""
        self._stop = asyncio.Event()

    def wrote(self, sha256: str) -> None:
        """Says that this process is about to write this content itself: it will not be reported."""
        self._own.append(sha256)

    def stop(self) -> None:
        """Ends the iteration soon."""
        self._stop.set()

    async def __aiter__(self) -> AsyncIterator[KernelFile]:
        async for _ in self._hints():
            kernel = self._read()
            if kernel is not None and not kernel.text:
                await asyncio.sleep(EMPTY_GRACE_S)
                kernel = self._read()
            if kernel is not None and self._is_news(kernel.sha256):
                yield kernel

    def _is_news(self, sha256: str) -> bool:
        if sha256 == self._known:
            return False
        self._known = sha256
        if sha256 in self._own:
            del self._own[: self._own.index(sha256) + 1]  # and those before it, which were overwritten unseen
            return False
        return True

    async def _hints(self) -> AsyncIterator[None]:
        """Something may have changed: an event in the folder, or a second went by."""
        from watchfiles import awatch

        while not self._stop.is_set():
            with suppress(FileNotFoundError, RuntimeError, OSError):
                async for _ in awatch(
                    self.path.parent,
                    watch_filter=None,
                    debounce=DEBOUNCE_MS,
                    step=STEP_MS,
                    stop_event=self._stop,
                    rust_timeout=RECHECK_MS,
                    yield_on_timeout=True,
                    recursive=False,
                ):
                    yield
                    if not self.path.parent.is_dir():
                        break  # the folder was replaced: watch the new one
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), RECHECK_MS / 1_000)
            yield

    def _read(self) -> KernelFile | None:
        try:
            return read_kernel(self.path)
        except UsageError:
            return None  # between deletion and re-creation, or half a character: the next event tells
