"""The engine: sends runs to the referee of this machine, and publishes every event.

One run at a time; a newer one cancels the one in progress. Whatever happens, every run ends with exactly one
of `Finished`, `Cancelled` and `Refused`.
"""

import asyncio
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from arena.errors import ArenaError, RefereeFailed
from arena.machine import calibration
from arena.machine.calibration import peaks_for
from arena.paths import Paths, make_folder, paths_in, unwritable
from arena.records.header import RunHeader
from arena.records.index import Store
from arena.records.json_lines import Journal, sync
from arena.records.run_record import record_of, result_in, view
from arena.runs.judge import Notice, RunInProgress, RunRequest, Terminal, header_of
from arena.runs.referee_process import COMMAND, RefereeProcess
from arena.workspace.kernels import Workspace
from arena.workspace.named_kernels import BASELINE, VARIANTS
from sandbox.protocol import events
from sandbox.protocol.events import Result
from sandbox.protocol.verdict import Verdict


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

    def start(self, header: RunHeader, result: Result, *, ended: bool = True) -> asyncio.Task[None] | None:
        """Records a result in the background, after an earlier one of the run. Returns None if it belongs in no index.

        ended: whether the journal has no later result.
        """
        if header.versus and not header.origin:
            return None
        earlier = self._recording.get(header.run_id)
        recording = asyncio.create_task(self._record(header, result, ended, earlier))
        self._recording[header.run_id] = recording
        recording.add_done_callback(
            lambda _: self._recording.pop(header.run_id) if self._recording[header.run_id] is recording else None
        )
        return recording

    async def recorded(self, run_id: str) -> None:
        """Waits until the newest result of a run is in the store; returns at once for a run without a result."""
        if (recording := self._recording.get(run_id)) is not None:
            await asyncio.wait([recording])

    async def close(self) -> None:
        """Closes the index, if it was opened here."""
        if self._own_store and self._store is not None:
            await asyncio.to_thread(self._store.close)
            self._store = None

    async def _record(self, header: RunHeader, result: Result, ended: bool, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        try:
            await asyncio.to_thread(self._write, header, result, ended)
        except ArenaError as error:
            self._notify(Notice(error.message, error.advice))
        except OSError as error:
            self._notify(Notice(f"cannot store the times of a baseline variant: {error}"))

    def _write(self, header: RunHeader, result: Result, ended: bool) -> None:
        sync(self._paths.runs / f"{header.run_id}.jsonl")
        try:
            self._index().record(record_of(header, result), ended)
        finally:
            if ended and not header.versus:
                self._keep_files(header, result)

    def _index(self) -> Store:
        with self._opening:
            if self._store is None:
                self._store = Store(self._paths.database, self._paths.runs)
            return self._store

    def _keep_files(self, header: RunHeader, result: Result) -> None:
        """Keeps the times of a baseline variant, or the kernel's text. Neither needs the index."""
        if header.player in VARIANTS and result.speedup and result.contender_us:
            calibration.keep_times(self._paths.calibrations, header.setting, header.player, result.contender_us)
        elif header.kernel_name != BASELINE:
            Workspace(self._paths.workspace).keep_revision(header.source, header.files)


CANCEL_S = 5.0
"""If a cancelled run has not ended by then, the referee is killed."""
OVERDUE_S = 90.0
"""Added to a phase's own deadline. The referee enforces deadlines, so this matters only when the referee hangs."""
BETWEEN_PHASES_S = 300.0
"""Longest time until the next phase starts. Worlds import torch meanwhile, perhaps on a busy machine."""
FATAL_S = 2.0
"""Longest time from a Fatal to the end of the run."""

MEASURING_S = 360.0
"""Limit of a calibration, including the start of the ranks and the wait while another arena is timing."""
M = TypeVar("M", events.Calibrated, events.TransfersTimed)


class Engine:
    """Judges kernels: sends runs to the referee, one at a time, publishes their events and stores their results.

    It belongs to one event loop. Call `start` first and `close` last; both may be left out when nothing is run.
    """

    def __init__(
        self,
        paths: Paths,
        store: Store | None = None,
        command: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
        notify: Callable[[Notice], None] = lambda notice: None,
    ) -> None:
        """
        Args:
            paths: where journals, results and caches lie.
            store: the index of results; when None, the index in `paths` is opened with the first result.
            command: starts the referee; when None, the arena's own command.
            environment: variables of the referee and its worlds, in addition to those of this process.
            notify: called in the event loop with every notice.
        """
        self._paths = paths
        self._recorder = ResultRecorder(paths, store, notify)
        self._command = command or COMMAND
        cache = os.environ.get("PKB_KERNEL_CACHE", str(paths.kernel_cache))
        self._environment = {"PKB_KERNEL_CACHE": cache, **(environment or {})}
        self._referee: RefereeProcess | None = None
        self._listeners: list[Callable[[events.AnyEvent], None]] = []
        self._notify = notify
        self._current: RunInProgress | None = None
        self._judge: RefereeProcess | None = None
        """The referee that received the current or the last run."""
        self._newest: RunInProgress | None = None
        self._asked = 0
        self._turn = asyncio.Lock()
        self._starting = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._closing = False
        self.worlds: dict[str, events.WorldChanged] = {}
        """The last event of every world by role, for listeners that subscribe later."""
        self.unended: set[str] = set()
        """Ids of the requested runs that have not ended, including those that have not begun."""
        self.jail = ""
        """Name of the jail that kernels run in; empty before `start`."""

    # --- start and end -------------------------------------------------------------------------------------

    async def start(self, setting: events.Setting | None = None) -> None:
        """Starts the referee. Not needed before `judge`, which starts it itself.

        setting: worlds for it start, too, so that the first run in it starts at once.

        Raises:
            RefereeFailed: it did not start.
            FolderUnwritable: the folder of the journals cannot be written.
        """
        await asyncio.to_thread(make_folder, self._paths.runs)
        referee = await self._living_referee()
        if setting is not None:
            await referee.send(events.Warm(setting=setting))

    async def close(self) -> None:
        """Ends the run in progress, the referee and all its worlds within bounded time. May be called twice."""
        self._closing = True
        if self._current is not None:
            self._end(self._current, self._current.cancelled)
        if self._referee is not None:
            await self._referee.stop()
            self._referee = None
        if self._background:
            await asyncio.wait(self._background, timeout=CANCEL_S)
        await self._recorder.close()

    async def __aenter__(self) -> "Engine":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- listeners -----------------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[events.AnyEvent], None]) -> Callable[[], None]:
        """Calls `listener` in the event loop with every event. Returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    # --- runs and measurements -----------------------------------------------------------------------------

    async def calibrate(self, setting: events.Setting) -> events.Calibrated:
        """Measures this machine's peaks with this device and world size; nothing else may be running.

        Raises:
            RefereeFailed: the peaks could not be measured.
        """
        return await self._measured(events.Calibrate(setting=setting), events.Calibrated)

    async def time_transfers(self, setting: events.Setting) -> events.TransfersTimed:
        """Measures the times of transfers between the ranks, on the same terms as `calibrate`."""
        return await self._measured(events.TimeTransfers(setting=setting), events.TransfersTimed)

    async def _measured(self, command: events.Calibrate | events.TimeTransfers, kind: type[M]) -> M:
        ended: asyncio.Future[M | events.Fatal] = asyncio.get_running_loop().create_future()

        def listen(event: events.AnyEvent) -> None:
            if isinstance(event, (kind, events.Fatal)) and not ended.done():
                ended.set_result(event)

        unsubscribe = self.subscribe(listen)
        try:
            referee = await self._living_referee()
            await referee.send(command)
            event = await asyncio.wait_for(ended, MEASURING_S)
        except TimeoutError:
            raise RefereeFailed(f"nothing was measured within {MEASURING_S:.0f} s", "run `pkb-arena doctor`") from None
        finally:
            unsubscribe()
        if isinstance(event, events.Fatal):
            raise RefereeFailed(event.message, "run `pkb-arena doctor`")
        return event

    async def judge(self, request: RunRequest) -> RunInProgress:
        """Starts judging a kernel; the run in progress is cancelled first.

        Every run ends with one terminal event, even if a newer run replaced it before it began.

        Raises:
            FolderUnwritable: the journal's folder cannot be created; nothing was started.
        """
        self._asked += 1
        asked = self._asked  # threads may finish in another order than they were started
        await asyncio.to_thread(make_folder, self._paths.runs)
        header = header_of(request)
        journal = Journal(self._paths.runs / f"{header.run_id}.jsonl", header, self._journal_trouble)
        run = RunInProgress(header, journal, self._cancel)
        self.unended.add(run.run_id)
        if asked == self._asked:
            self._newest = run
        try:
            async with self._turn:
                await self._begin(run, request)
        except BaseException:  # cancelled while it waited for its turn or for the referee
            self._spawn(self._cancel(run))
            raise
        return run

    async def cancel(self) -> None:
        """Ends the run in progress, if there is one, and waits until it has ended."""
        self._newest = None
        await self._stop_current()

    async def recorded(self, run_id: str) -> None:
        """Waits until the newest result of a run is in the store; returns at once for a run without a result."""
        await self._recorder.recorded(run_id)

    @property
    def running(self) -> str | None:
        """Id of the run in progress."""
        return self._current.run_id if self._current is not None else None

    # --- internal ------------------------------------------------------------------------------------------

    async def _begin(self, run: RunInProgress, request: RunRequest) -> None:
        """Sends a run to the referee, unless a newer one was requested meanwhile."""
        if self._newest is run:
            await self._stop_current()
        referee = None
        if self._newest is run and not self._closing:
            try:
                referee = await self._living_referee()
            except RefereeFailed as error:
                self._end(run, run.failed(error.message))
                return
        if referee is None or self._newest is not run or self._closing or run.ended:
            self._end(run, run.cancelled)
            return
        self._current, self._judge = run, referee
        self._watch(run, BETWEEN_PHASES_S)
        await referee.send(
            view(
                events.Run,
                request,
                run,
                peaks=peaks_for(self._paths.calibrations, request.setting),
                offsets=calibration.offsets_for(self._paths.calibrations, request.setting),
                beside=calibration.times_for(self._paths.calibrations, request.setting),
            )
        )

    async def _cancel(self, run: RunInProgress) -> None:
        if self._newest is run:
            self._newest = None
        if self._current is run:
            await self._stop_current()
        else:
            self._end(run, run.cancelled)

    async def _living_referee(self) -> RefereeProcess:
        async with self._starting:
            if self._referee is None or not self._referee.alive:
                self._referee = await RefereeProcess.start(
                    self._on_event, self._on_exit, self._command, self._environment
                )
            return self._referee

    async def _stop_current(self) -> None:
        run = self._current
        if run is None:
            return
        if self._referee is not None:
            await self._referee.send(events.Cancel(run_id=run.run_id))
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_S):
                await run.end()
        if not run.ended:
            self._end(run, run.cancelled)
            await self._kill_referee()

    async def _kill_referee(self) -> None:
        referee, self._referee = self._referee, None
        if referee is not None:
            await referee.kill()

    def _on_event(self, event: events.AnyEvent) -> None:
        if isinstance(event, events.Ready):
            self.jail = event.jail
        if isinstance(event, events.WorldOffsets):
            self._spawn(self._keep_offsets(event))
            return
        run = self._current
        run_id = getattr(event, "run_id", None)
        if run is None or (run_id is not None and run_id != run.run_id):
            if run_id is None:
                self._tell(event)
            return  # a late event of an abandoned run
        match event:
            case events.Finished() | events.Cancelled() | events.Refused():
                self._end(run, event)
                return
            case events.PhaseStarted():
                run.phase = event.phase
                self._watch(run, event.limit_s + OVERDUE_S)
            case events.PhaseEnded() | events.Waiting():
                self._watch(run, BETWEEN_PHASES_S)
            case events.Fatal():
                self._watch(run, FATAL_S, event.message, event.text)
            case events.Judged():
                if run.judged is None:
                    self._record(run, event.result, ended=False)
                run.judged = event.result
        run.record(event)
        self._tell(event)

    async def _keep_offsets(self, event: events.WorldOffsets) -> None:
        with suppress(ArenaError):  # later intervals are wider without it
            await asyncio.to_thread(calibration.keep_offsets, self._paths.calibrations, event)

    def _on_exit(self, referee: RefereeProcess, why: str) -> None:
        run = self._current
        if run is not None and self._judge is referee:
            self._end(run, run.failed(f"the referee {why}", referee.last_words))
        if self._referee not in (None, referee):
            return  # a new referee has replaced it
        self.worlds.clear()
        if not self._closing and self._referee is referee:  # else the engine killed it
            self._notify(
                Notice(f"the referee {why}; the next run starts a new one", "see `pkb-arena doctor` if it repeats")
            )

    def _watch(
        self, run: RunInProgress, seconds: float, message: str = "the referee does not answer", text: str = ""
    ) -> None:
        """Ends the run and kills the referee unless the next expected event comes within `seconds`."""

        def overdue() -> None:
            if not run.ended:
                self._end(run, run.failed(message, text))
                self._spawn(self._kill_referee())

        run.watch(seconds, overdue)

    def _end(self, run: RunInProgress, event: Terminal) -> None:
        if run.ended:
            return
        if self._current is run:
            self._current = None
        if isinstance(event, events.Finished) and event.result.verdict is Verdict.HARNESS_ERROR and run.judged:
            self._notify(Notice(f"measuring on ended: {event.result.detail}", "the verdict stays"))
            event = replace(event, result=run.judged)
        if (result := result_in(run.header, event)) is not None:
            self._record(run, result, ended=True)
        run.finish(event)
        self.unended.discard(run.run_id)
        self._tell(event)

    def _record(self, run: RunInProgress, result: Result, *, ended: bool) -> None:
        if (recording := self._recorder.start(run.header, result, ended=ended)) is not None:
            self._in_background(recording)

    def _journal_trouble(self, error: OSError) -> None:
        fault = unwritable(self._paths.runs, error)
        self._notify(Notice(f"this run's journal is incomplete: {fault.message}", "free some space; the run goes on"))

    def _tell(self, event: events.AnyEvent) -> None:
        if isinstance(event, events.WorldChanged):
            self.worlds[event.role] = event
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception as error:  # a listener's error must not end the run: the loop's handler reports it
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "event listener failed", "exception": error}
                )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._in_background(asyncio.create_task(work))

    def _in_background(self, task: asyncio.Task[None]) -> None:
        """Keeps the task until it is done; `close` waits for it."""
        self._background.add(task)
        task.add_done_callback(self._background.discard)


@asynccontextmanager
async def temporary_engine(environment: Mapping[str, str] | None = None) -> AsyncIterator[Engine]:
    """The engine; its folder is removed after it is closed. environment: variables of its referee."""
    with tempfile.TemporaryDirectory(prefix="pkb-engine-") as folder:
        async with Engine(paths_in(Path(folder)), environment=environment) as engine:
            yield engine
