"""Puts the results of an engine's runs into the index, and their kernels into the workspace."""

import asyncio
import threading
from collections.abc import Callable

from arena.errors import ArenaError
from arena.paths import Paths
from arena.records.header import RunHeader
from arena.records.index import Store
from arena.records.json_lines import sync
from arena.records.run_record import record_of
from arena.runs.run_request import Notice
from arena.workspace import baseline_variant_times
from arena.workspace.kernels import Workspace
from arena.workspace.named_kernels import BASELINE, VARIANTS
from sandbox.protocol.events import Result


class ResultRecorder:
    """Stores results. A result that cannot be stored leads to a notice; the run's journal still has it."""

    def __init__(self, paths: Paths, store: Store | None, notify: Callable[[Notice], None]) -> None:
        """store: when None, the index in `paths` is opened with the first result, and closed by `close`."""
        self._paths = paths
        self._store = store
        self._own_store = store is None
        self._opening = threading.Lock()
        """Two runs may end while the index is opened. Opening takes long if the index must be rebuilt."""
        self._notify = notify
        self._recording: dict[str, asyncio.Task[None]] = {}
        """The tasks that are storing a result, by run id."""

    def start(self, header: RunHeader, result: Result) -> asyncio.Task[None] | None:
        """Records a result in the background. Returns None for a run that belongs in no index."""
        if header.versus and not header.origin:
            return None
        recording = asyncio.create_task(self._record(header, result))
        self._recording[header.run_id] = recording
        recording.add_done_callback(lambda _: self._recording.pop(header.run_id, None))
        return recording

    async def recorded(self, run_id: str) -> None:
        """Waits until the result of a finished run is in the store; returns at once for a run without a result."""
        if (recording := self._recording.get(run_id)) is not None:
            await asyncio.wait([recording])

    async def close(self) -> None:
        """Closes the index, if it was opened here."""
        if self._own_store and self._store is not None:
            await asyncio.to_thread(self._store.close)
            self._store = None

    async def _record(self, header: RunHeader, result: Result) -> None:
        try:
            await asyncio.to_thread(self._write, header, result)
        except ArenaError as error:
            self._notify(Notice(error.message, error.advice))
        except OSError as error:
            self._notify(Notice(f"cannot store the times of a baseline variant: {error}"))

    def _write(self, header: RunHeader, result: Result) -> None:
        sync(self._paths.runs / f"{header.run_id}.jsonl")
        try:
            self._index().record(record_of(header, result))
        finally:
            if not header.versus:
                self._keep_files(header, result)

    def _index(self) -> Store:
        with self._opening:
            if self._store is None:
                self._store = Store(self._paths.database, self._paths.runs)
            return self._store

    def _keep_files(self, header: RunHeader, result: Result) -> None:
        """Keeps the times of a baseline variant, or the kernel's text. Neither needs the index."""
        if header.player in VARIANTS and result.speedup and result.contender_us:
            baseline_variant_times.keep(self._paths.calibrations, header.setting, header.player, result.contender_us)
        elif header.kernel_name != BASELINE:
            Workspace(self._paths.workspace).keep_revision(header.source, header.files)
