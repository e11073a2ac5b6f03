"""Services of the screens, opened in steps: the first paint needs no disk, the list of problems no engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from arena.errors import ArenaError
from arena.paths import Paths, make_folder
from arena.settings import Settings, load_settings
from arena.workspace.kernels import KernelLocks, Workspace
from sandbox.machine import thunderkittens

if TYPE_CHECKING:
    from arena.records.index import Store
    from arena.records.ranking import Standing
    from arena.runs.engine import Engine
    from arena.runs.judge import Notice, RunInProgress, RunRequest
    from problems.catalogue import Catalogue
    from sandbox.protocol.events import Setting


class Services:
    """Settings and workspace at once; catalogue and index of results after `read`, the engine after `make_engine`."""

    warms = True
    """Whether worlds are prepared. For what is over, none are."""

    def __init__(self, paths: Paths, referee: Sequence[str] = ()) -> None:
        """Reads the settings.

        `referee` is the command of another judge, for tests.

        Raises:
            SettingsError: the settings file is invalid.
            FolderUnwritable: the data folder cannot be created or written.
        """
        self.paths = paths
        self._referee = referee
        self.first_start = not paths.settings_file.exists()
        self.settings: Settings = load_settings(paths)
        thunderkittens.name(self.settings.thunderkittens)
        make_folder(paths.workspace)
        self.locks = KernelLocks(paths.workspace)
        self.catalogue: Catalogue | None = None
        self.standings: dict[int, Standing] = {}
        """The user's standing with every problem, by its id."""
        self.house: dict[int, Standing] = {}
        """The same for the house kernels that were run on this machine."""
        self.best: dict[int, Standing] = {}
        """The best result of any player with every problem, by its id."""
        self.marked: set[str] = set()
        """Ids of the runs, and hashes of the texts, that were marked to compare them."""
        self.results_fault: ArenaError | None = None
        """Why the results are not shown; None: they are."""
        self.last_runs: dict[Path, tuple[RunRequest, RunInProgress]] = {}
        """The newest run of every kernel, by its file or folder: it goes on when its screen is left."""
        self._store: Store | None = None
        self.reading = asyncio.Lock()  # of results: what was read earlier must not replace newer ones
        self._engine: Engine | None = None

    @cached_property
    def workspace(self) -> Workspace:
        """The kernel files."""
        return Workspace(self.paths.workspace)

    async def read(self) -> Catalogue:
        """Reads what a list of problems needs: the catalogue and the results, as `refresh_standings`."""
        self.catalogue = await asyncio.to_thread(self.read_catalogue)
        await self.refresh_standings()
        return self.catalogue

    async def read_players(self) -> None:
        """Reads the models and agent programs in the settings again. Raises ArenaError if the file cannot be read."""
        read = await asyncio.to_thread(load_settings, self.paths)
        self.settings = replace(self.settings, models=read.models, agents=read.agents)

    def make_engine(self, notify: Callable[[Notice], None]) -> None:
        """Makes the engine; only after `read`. Its processes start later."""
        from arena.runs.engine import Engine

        self._engine = Engine(self.paths, self._store, self._referee, notify=notify)

    def read_catalogue(self) -> Catalogue:
        """Returns all problems, the user's own among them. Blocks for milliseconds."""
        from problems.catalogue import load_catalogue

        return load_catalogue(self.settings.problem_folders)

    @property
    def store(self) -> Store:
        """The index of results; only after `read`.

        Raises:
            ArenaError: it could not be opened.
        """
        if self._store is None:
            assert self.results_fault is not None, "Services.read has not run"
            raise self.results_fault
        return self._store

    @property
    def engine(self) -> Engine:
        """The engine; only after `make_engine`."""
        assert self._engine is not None, "Services.make_engine has not run"
        return self._engine

    async def warm(self, setting: Setting) -> str:
        """Prepares worlds for a setting. Returns the error, or "" if there was none."""
        try:
            if self.warms:
                await self.engine.start(setting)
        except ArenaError as error:
            return f"{error.message}: {error.advice}"
        return ""

    async def refresh_standings(self) -> None:
        """Reads the results of every problem again: the user's, the house kernels' and the best ones.

        If they cannot be read, there are none, and `results_fault` says why. The next call opens the index again.
        """
        from arena.records.index import Store
        from arena.workspace.named_kernels import HOUSE

        try:
            async with self.reading:
                if self._store is None:
                    self._store = await asyncio.to_thread(Store, self.paths.database, self.paths.runs)
                self.standings = await asyncio.to_thread(self._store.standings)
                self.house = await asyncio.to_thread(self._store.standings, HOUSE)
                self.best = await asyncio.to_thread(self._store.best)
                self.results_fault = None
        except ArenaError as error:
            self.standings, self.house, self.best, self.results_fault = {}, {}, {}, error

    async def close(self) -> None:
        """Ends every process and file; bounded by the engine's own limits. May be called twice."""
        if self._engine is not None:
            await self._engine.close()
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
