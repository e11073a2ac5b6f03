"""One kernel of one problem while it is worked on: its file, its drafts, its runs. No widgets here."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

from arena.errors import ArenaError
from arena.run_request import RunRequest
from arena.run_state import RunState
from arena.setting_choice import Choice, choose_setting
from arena.watcher import KernelWatcher
from arena.workspace import KernelFile, content_hash, read_kernel
from problems.specification import Problem
from sandbox.events import AnyEvent, Cancelled, Fatal, Finished, Refused, RunStarted, Setting
from screens.log_lines import LogLine, lines_of
from screens.services import Services


class KernelSession:
    """Everything the arena screen needs to know and do about one kernel file."""

    def __init__(self, services: Services, problem: Problem, path: Path | None = None) -> None:
        """`path` None takes the person's own kernel in the workspace."""
        self.services = services
        self.problem = problem
        self.path = path or services.workspace.kernel_path(problem)
        self.choice = Choice()
        self.state = RunState()
        self.changed = True
        """Something was folded in since the screen last drew."""
        self.waiting_since: float | None = None
        """When a run was asked for that has not begun yet, on this process's monotonic clock."""
        self._new_lines: list[LogLine] = []
        self._new_run = False
        self._clock_offset = 0.0
        self._watcher: KernelWatcher | None = None

    # --- the file ------------------------------------------------------------------------------------------

    def open(self, starter: str) -> tuple[str, str | None]:
        """Reads the kernel file, writing `starter` where there is none. Blocks for milliseconds.

        Returns:
            The file's text, and a draft that was typed but never saved.

        Raises:
            ArenaError: the file can be neither read nor written.
        """
        if not self.path.exists():
            self.services.workspace.save(self.path, starter)
        kernel = read_kernel(self.path)
        self.services.workspace.keep_revision(kernel.text)
        self._watcher = KernelWatcher(self.path, kernel.sha256)
        return kernel.text, self.services.workspace.draft(self.path)

    async def save(self, text: str) -> None:
        """Writes the kernel file.

        Raises:
            ArenaError: the file is as it was.
        """
        if self._watcher is not None:
            self._watcher.wrote(content_hash(text))
        await asyncio.to_thread(self.services.workspace.save, self.path, text)

    async def save_draft(self, text: str) -> None:
        """Keeps what is typed, so that a crash loses nothing.

        Raises:
            ArenaError: the previous draft is as it was.
        """
        await asyncio.to_thread(self.services.workspace.save_draft, self.path, text)

    async def keep(self, text: str) -> None:
        """Keeps a text as a revision: it is about to be replaced in the editor."""
        await asyncio.to_thread(self.services.workspace.keep_revision, text)

    async def outside_saves(self) -> AsyncIterator[KernelFile]:
        """Every content that another program saves into the kernel file."""
        assert self._watcher is not None, "open comes first"
        async for kernel in self._watcher:
            await self.keep(kernel.text)
            yield kernel

    def stop_watching(self) -> None:
        """Ends `outside_saves`."""
        if self._watcher is not None:
            self._watcher.stop()

    # --- runs ----------------------------------------------------------------------------------------------

    def setting(self) -> Setting:
        """What the next run is measured in.

        Raises:
            ArenaError: the choice does not fit the problem or this machine.
        """
        return choose_setting(self.problem, self.choice, self.services.settings)

    async def run(self, text: str, *, baseline: bool = False) -> None:
        """Starts a run; one in progress is cancelled by it.

        Raises:
            ArenaError: nothing was started.
        """
        request = RunRequest(
            problem=self.problem,
            setting=self.setting(),
            kernel_name="baseline" if baseline else self.path.name,
            source="" if baseline else text,
            kernel_path="" if baseline else str(self.path),
            budget_s=self.services.settings.budget_s,
        )
        self.waiting_since = time.monotonic()
        self.changed = True
        try:
            await self.services.engine.run(request)
        except ArenaError:
            self.waiting_since = None
            raise

    def apply(self, event: AnyEvent) -> None:
        """Folds an event in."""
        if event.at:
            self._clock_offset = time.monotonic() - event.at
        if isinstance(event, RunStarted):
            self._new_run = True
            self._new_lines.clear()
        overtaken = isinstance(event, Cancelled) and event.run_id == self.state.run_id
        if isinstance(event, RunStarted | Finished | Refused | Fatal | Cancelled) and not overtaken:
            self.waiting_since = None
        self.state.apply(event)
        self._new_lines += lines_of(event)
        self.changed = True

    @property
    def now(self) -> float:
        """The present on the clock of the events."""
        return time.monotonic() - self._clock_offset

    @property
    def busy(self) -> bool:
        """A run is waiting for its worlds, or in progress."""
        return self.waiting_since is not None or self.state.running

    @property
    def waited(self) -> float | None:
        """Seconds since a run was asked for that has not begun yet."""
        return None if self.waiting_since is None else time.monotonic() - self.waiting_since

    def take_log(self) -> tuple[bool, list[LogLine]]:
        """(a new run began, lines) since the last call."""
        taken = (self._new_run, self._new_lines)
        self._new_run, self._new_lines = False, []
        return taken
