"""The engine: takes runs, has the referee judge them, and tells everybody what happens.

One run at a time; a newer one cancels the one in progress. Whatever happens, every run ends with exactly one
of `Finished`, `Cancelled` and `Refused`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from arena import yardstick_times
from arena.calibration import peaks_for
from arena.errors import ArenaError, RefereeFailed
from arena.journal import Journal, RunHeader
from arena.paths import Paths, make_folder, unwritable
from arena.referee_process import COMMAND, RefereeProcess
from arena.results import harness_error
from arena.run_request import Notice, RunRequest, header_of
from arena.store import BASELINE, Store, entry_of
from arena.workspace import Workspace
from arena.yardsticks import WORDS
from sandbox.events import (
    AnyEvent,
    Calibrate,
    Calibrated,
    Cancel,
    Cancelled,
    Fatal,
    Finished,
    PhaseEnded,
    PhaseStarted,
    Ready,
    Refused,
    Result,
    Run,
    Setting,
    Warm,
)

CANCEL_S = 5.0
"""A cancelled run that has not ended by then takes the referee with it."""
OVERDUE_S = 90.0
"""Beyond a phase's own deadline, which the referee enforces: only when the referee itself hangs."""
BETWEEN_PHASES_S = 300.0
"""Until the next phase starts: worlds import torch meanwhile, on a machine that may be busy."""
FATAL_S = 2.0
"""After a Fatal, the run's own end should follow at once."""

CALIBRATION_S = 180.0
"""Starting the ranks included."""
RUNS_KEPT = 64
"""Runs that can still be asked about by id; the store has them all."""

Terminal = Finished | Cancelled | Refused


@dataclass(eq=False)
class _ActiveRun:
    header: RunHeader
    journal: Journal
    ended: asyncio.Future[Terminal]
    phase: str = "prepare"
    watchdog: asyncio.TimerHandle | None = field(default=None, repr=False)


class Engine:
    """Lives in one event loop. `start` before, `close` after; both may be left out when nothing is run."""

    def __init__(self, paths: Paths, store: Store | None = None, command: Sequence[str] = COMMAND) -> None:
        """`store` takes the results; it is opened on the first result when none is given."""
        self._paths = paths
        self._store = store
        self._own_store = store is None
        self._command = command
        self._referee: RefereeProcess | None = None
        self._listeners: list[Callable[[AnyEvent], None]] = []
        self._notice_listeners: list[Callable[[Notice], None]] = []
        self._current: _ActiveRun | None = None
        self._newest = ""
        self._asked = 0
        self._turn = asyncio.Lock()
        self._starting = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._runs: dict[str, _ActiveRun] = {}
        self._closing = False
        self.jail = ""
        """Name of the jail that kernels run in; empty before `start`."""

    # --- life ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts the referee. Needless before `run` or `warm`, which do it themselves.

        Raises:
            RefereeFailed: it did not come up.
            FolderUnwritable: the folder of the journals cannot be written.
        """
        await asyncio.to_thread(make_folder, self._paths.runs)
        await self._living_referee()

    async def close(self) -> None:
        """Ends the run in progress, the referee and all its worlds. Bounded; may be called twice."""
        self._closing = True
        if self._current is not None:
            self._end(self._current, Cancelled(run_id=self._current.header.run_id, phase=self._current.phase))
        if self._referee is not None:
            await self._referee.stop()
            self._referee = None
        if self._background:
            await asyncio.wait(self._background, timeout=CANCEL_S)
        if self._own_store and self._store is not None:
            await asyncio.to_thread(self._store.close)
            self._store = None

    async def __aenter__(self) -> "Engine":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- what it says --------------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[AnyEvent], None]) -> Callable[[], None]:
        """Calls `listener` in the event loop with every event. Returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def subscribe_notices(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """The same for notices."""
        self._notice_listeners.append(listener)
        return lambda: self._notice_listeners.remove(listener) if listener in self._notice_listeners else None

    async def events(self) -> AsyncIterator[AnyEvent]:
        """Every event from now on."""
        queue: asyncio.Queue[AnyEvent] = asyncio.Queue()
        unsubscribe = self.subscribe(queue.put_nowait)
        try:
            while True:
                yield await queue.get()
        finally:
            unsubscribe()

    # --- what it does --------------------------------------------------------------------------------------

    async def warm(self, setting: Setting) -> None:
        """Has worlds made ready for a setting, so that the first run in it starts at once.

        Raises:
            RefereeFailed: the referee did not come up.
        """
        referee = await self._living_referee()
        await referee.send(Warm(setting=setting))

    async def calibrate(self, setting: Setting) -> Calibrated:
        """Measures this machine's peaks with this device and world size; nothing else may be running.

        Raises:
            RefereeFailed: it could not be measured.
        """
        ended: asyncio.Future[Calibrated | Fatal] = asyncio.get_running_loop().create_future()

        def listen(event: AnyEvent) -> None:
            if isinstance(event, Calibrated | Fatal) and not ended.done():
                ended.set_result(event)

        unsubscribe = self.subscribe(listen)
        try:
            referee = await self._living_referee()
            await referee.send(Calibrate(setting=setting))
            event = await asyncio.wait_for(ended, CALIBRATION_S)
        except TimeoutError:
            raise RefereeFailed(
                f"no calibration within {CALIBRATION_S:.0f} s", "run `pkb-arena doctor`"
            ) from None
        finally:
            unsubscribe()
        if isinstance(event, Fatal):
            raise RefereeFailed(event.message, "run `pkb-arena doctor`")
        return event

    async def run(self, request: RunRequest) -> str:
        """Starts judging a kernel; the run in progress is cancelled first. Returns the run's id.

        Every run ends with one terminal event, also one that a newer run overtook before it began.

        Raises:
            FolderUnwritable: the journal's folder cannot be created; nothing was started.
        """
        self._asked += 1
        asked = self._asked  # threads may finish in another order than they were started
        await asyncio.to_thread(make_folder, self._paths.runs)
        active = self._prepare(request)
        run_id = active.header.run_id
        if asked == self._asked:
            self._newest = run_id
        async with self._turn:
            if self._newest == run_id:
                await self._stop_current()
            referee = None
            if self._newest == run_id and not self._closing:
                try:
                    referee = await self._living_referee()
                except RefereeFailed as error:
                    self._end(active, harness_error(active.header, active.phase, error.message))
                    return run_id
            if referee is None or self._newest != run_id or self._closing:  # overtaken while it waited
                self._end(active, Cancelled(run_id=run_id, phase="prepare"))
                return run_id
            self._current = active
            self._watch(active, BETWEEN_PHASES_S)
            await referee.send(
                Run(
                    run_id=run_id,
                    setting=request.setting,
                    kernel_name=request.kernel_name,
                    source=request.source,
                    rounds=request.rounds,
                    budget_s=request.budget_s,
                    peaks=peaks_for(self._paths.calibrations, request.setting),
                    beside=yardstick_times.times_for(self._paths.calibrations, request.setting),
                    versus=request.versus,
                )
            )
        return run_id

    async def cancel(self) -> None:
        """Ends the run in progress, if there is one, and waits until it has ended."""
        self._newest = ""
        await self._stop_current()

    async def wait(self, run_id: str) -> Terminal:
        """The event that ended a run, once it has."""
        return await asyncio.shield(self._runs[run_id].ended)

    @property
    def running(self) -> str | None:
        """Id of the run in progress."""
        return self._current.header.run_id if self._current is not None else None

    def header(self, run_id: str) -> RunHeader:
        """What was asked in one of this engine's last runs."""
        return self._runs[run_id].header

    # --- inside --------------------------------------------------------------------------------------------

    def _prepare(self, request: RunRequest) -> _ActiveRun:
        header = header_of(request)
        run_id = header.run_id
        journal = Journal(self._paths.runs / f"{run_id}.jsonl", header, self._journal_trouble)
        ended: asyncio.Future[Terminal] = asyncio.get_running_loop().create_future()
        active = self._runs[run_id] = _ActiveRun(header, journal, ended)
        while len(self._runs) > RUNS_KEPT:
            del self._runs[next(iter(self._runs))]
        return active

    async def _living_referee(self) -> RefereeProcess:
        async with self._starting:
            if self._referee is None or not self._referee.alive:
                environment = {
                    "PKB_KERNEL_CACHE": os.environ.get("PKB_KERNEL_CACHE", str(self._paths.kernel_cache))
                }
                self._referee = await RefereeProcess.start(
                    self._on_event, self._on_exit, self._command, environment
                )
            return self._referee

    async def _stop_current(self) -> None:
        run = self._current
        if run is None:
            return
        if self._referee is not None:
            await self._referee.send(Cancel(run_id=run.header.run_id))
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_S):
                await asyncio.shield(run.ended)
        if not run.ended.done():
            self._end(run, Cancelled(run_id=run.header.run_id, phase=run.phase))
            await self._kill_referee()

    async def _kill_referee(self) -> None:
        referee, self._referee = self._referee, None
        if referee is not None:
            await referee.kill()

    def _on_event(self, event: AnyEvent) -> None:
        if isinstance(event, Ready):
            self.jail = event.jail
        run = self._current
        run_id = getattr(event, "run_id", None)
        if run is None or (run_id is not None and run_id != run.header.run_id):
            if run_id is None:
                self._tell(event)
            return  # the late end of a run that was given up
        match event:
            case Finished() | Cancelled() | Refused():
                self._end(run, event)
                return
            case PhaseStarted():
                run.phase = event.phase
                self._watch(run, event.limit_s + OVERDUE_S)
            case PhaseEnded():
                self._watch(run, BETWEEN_PHASES_S)
            case Fatal():
                self._watch(run, FATAL_S, event.message, event.text)
        run.journal.append(event)
        self._tell(event)

    def _on_exit(self, why: str) -> None:
        run = self._current
        words = self._referee.last_words if self._referee is not None else ""
        if run is not None:
            self._end(run, harness_error(run.header, run.phase, f"the referee {why}", words))
        if not self._closing:
            self._notify(
                Notice(
                    f"the referee {why}; the next run starts a new one",
                    "see `pkb-arena doctor` if it repeats",
                )
            )

    def _watch(
        self, run: _ActiveRun, seconds: float, message: str = "the referee does not answer", text: str = ""
    ) -> None:
        """Gives the run up when nothing that is due has come within `seconds`."""
        if run.watchdog is not None:
            run.watchdog.cancel()

        def overdue() -> None:
            if not run.ended.done():
                self._end(run, harness_error(run.header, run.phase, message, text))
                self._spawn(self._kill_referee())

        run.watchdog = asyncio.get_running_loop().call_later(seconds, overdue)

    def _end(self, run: _ActiveRun, event: Terminal) -> None:
        if run.ended.done():
            return
        if run.watchdog is not None:
            run.watchdog.cancel()
        if self._current is run:
            self._current = None
        run.journal.append(event)
        run.journal.close()
        if isinstance(event, Finished) and not run.header.versus:
            self._spawn(self._record(run.header, event.result))
        run.ended.set_result(event)
        self._tell(event)

    async def _record(self, header: RunHeader, result: Result) -> None:
        def write() -> None:
            if self._store is None:
                self._store = Store(self._paths.database, self._paths.runs)
            self._store.record(entry_of(header, result))
            if header.player in WORDS and result.speedup and result.contender_us:
                yardstick_times.keep(
                    self._paths.calibrations, header.setting, header.player, result.contender_us
                )
            elif header.kernel_name != BASELINE:
                Workspace(self._paths.workspace).keep_revision(header.source)

        try:
            await asyncio.to_thread(write)
        except ArenaError as error:
            self._notify(Notice(error.message, error.advice))
        except OSError as error:
            self._notify(Notice(f"cannot keep what a yardstick took: {error}"))

    def _journal_trouble(self, error: OSError) -> None:
        fault = unwritable(self._paths.runs, error)
        self._notify(
            Notice(f"this run's journal is incomplete: {fault.message}", "free some space; the run goes on")
        )

    def _notify(self, notice: Notice) -> None:
        for listener in list(self._notice_listeners):
            listener(notice)

    def _tell(self, event: AnyEvent) -> None:
        for listener in list(self._listeners):
            try:
                listener(event)
            except (
                Exception
            ) as error:  # a listener's fault must not end the run: the loop's handler reports it
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "event listener failed", "exception": error}
                )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
