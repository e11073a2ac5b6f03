"""The interface of everything that judges kernels: judge a request, stream its events, cancel it.

`arena.runs.engine.Engine` is the implementation for this machine.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from arena.errors import RunCancelled, RunRefused
from arena.machine.facts import this_machine
from arena.records.header import RunHeader, new_id
from arena.records.json_lines import Journal
from arena.records.run_record import OtherSize, RunRecord, record_of, view
from arena.words.untrusted_text import printable
from problems.specification import Problem
from sandbox.protocol.events import AnyEvent, Cancelled, Finished, Judged, Log, Refused, Result, RunTerms, Setting
from sandbox.protocol.kernel_files import kernel_hash
from sandbox.protocol.result import harness_error_result

SWEEP = 1
"""As `sandbox.referee.lease.Urgency`."""


class RunRequest(RunTerms, frozen=True, kw_only=True):
    """One kernel to judge in one setting. A run with `versus` and without `origin` is in no index."""

    problem: Problem
    kernel_path: str = ""
    player: str = "you"
    origin: str = ""
    """SHA-256 of the kernel that the player started from. With `versus`, that kernel takes the baseline's place."""
    other_than: str = ""
    """For a run at other sizes: the id of the same kernel's run that it belongs to."""

    @property
    def most_s(self) -> float | None:
        """Seconds that timing may take; None where the number of rounds is given."""
        return self.budget_s if self.rounds is None else None


@dataclass(frozen=True)
class Notice:
    """A message for the user that is not an event of a run: a full disk, a referee that died."""

    message: str
    advice: str = ""


def header_of(request: RunRequest, machine: str = "") -> RunHeader:
    """Returns the first line of a run's journal, with a new id from the current time and random digits.

    machine: fingerprint of the machine that runs it, if that is not this one.
    """
    created = time.time()
    problem = request.problem
    source = problem.baseline_source if request.is_baseline else request.source
    return view(
        RunHeader, request, problem,
        run_id=new_id(created),
        created=created,
        problem_id=problem.id,
        sha256=kernel_hash(source, request.files),
        source=source,
        preset_sizes=request.setting.sizes == problem.presets.get(request.setting.preset),
        versus=request.versus.kernel_name if request.versus is not None else "",
        correctness_only=request.rounds == 0,
        machine=machine or this_machine(request.setting.device).digest,
    )  # fmt: skip


@dataclass(frozen=True)
class Judgement:
    """A finished run: the request, the result, and what the ranks printed."""

    header: RunHeader
    result: Result
    printed: str = ""
    """The beginning of what the ranks printed, with the rank in front of each piece."""
    others: tuple[OtherSize, ...] | None = None
    """The kernel's results at other sizes; None if it was not judged there."""

    @cached_property
    def report(self) -> RunRecord:
        """The result as `run --json` prints it."""
        found = record_of(self.header, self.result)
        return found if self.others is None else found.with_others(self.others)


PRINTED_CHARACTERS = 4000

Terminal = Finished | Cancelled | Refused


class RunInProgress:
    """One run of a judge. It goes on whether or not its result is awaited. The judge calls `watch`, `record` and `finish`."""

    def __init__(
        self, header: RunHeader, journal: Journal, cancel: Callable[["RunInProgress"], Awaitable[object]]
    ) -> None:
        """cancel: ends the run, and returns when it has ended."""
        self.header = header
        self.phase = "prepare"
        """The phase in progress, or the last one."""
        self.last_at = time.monotonic()
        """Time of its last event, on this process's monotonic clock."""
        self.judged: Result | None = None
        """The verdict so far of a run that goes on measuring."""
        self.watchdog: asyncio.TimerHandle | None = None
        self._journal = journal
        self._cancel = cancel
        self._events: list[AnyEvent] = []
        self._more = asyncio.Event()
        self._end: asyncio.Future[Terminal] = asyncio.get_running_loop().create_future()

    @property
    def run_id(self) -> str:
        return self.header.run_id

    @property
    def ended(self) -> bool:
        """Whether the last event has come."""
        return self._end.done()

    @property
    def cancelled(self) -> Cancelled:
        """The last event of a run whose referee does not send one."""
        return Cancelled(run_id=self.run_id, phase=self.phase)

    def failed(self, message: str, text: str = "") -> Finished:
        """The last event of a run whose referee has failed. text: what the referee printed last."""
        return view(Finished, self.header, result=harness_error_result(self.phase, message, text))

    @property
    def events_so_far(self) -> tuple[AnyEvent, ...]:
        """All events that have come, in order."""
        return tuple(self._events)

    async def events(self) -> AsyncIterator[AnyEvent]:
        """Yields the run's events from the first one on, also when it is called late.

        The last one is Finished, Cancelled or Refused.
        """
        told = 0
        while True:
            more, ended = self._more, self.ended
            for event in self._events[told:]:
                yield event
                told += 1
            if ended and told == len(self._events):
                return
            await more.wait()

    async def end(self) -> Terminal:
        """Waits for the run's last event."""
        return await asyncio.shield(self._end)

    async def result(self) -> Judgement:
        """Waits until the run has finished.

        Raises:
            RunRefused: the setting cannot be run.
            RunCancelled: the run was cancelled, or a newer one took its place.
        """
        end = await self.end()
        if isinstance(end, Refused):
            raise RunRefused(end.message, end.advice)
        if isinstance(end, Cancelled):
            raise RunCancelled(f"the run was cancelled in its phase {end.phase}", "start it again")
        return self.judgement(end.result)

    def judgement(self, result: Result) -> Judgement:
        """Returns a result of this run with what its ranks have printed so far."""
        # Logs without a rank are from the referee, not from a kernel.
        logs = (event for event in self._events if isinstance(event, Log) and event.rank >= 0)
        printed = (f"[rank {log.rank}] {printable(log.text)}" for log in logs)
        return Judgement(self.header, result, "".join(printed)[:PRINTED_CHARACTERS])

    async def cancel(self) -> None:
        """Ends the run and waits until it has ended. Does nothing when it has ended already."""
        if not self.ended:
            await self._cancel(self)

    # --- for the engine --------------------------------------------------------------------------------------

    def watch(self, seconds: float, overdue: Callable[[], None]) -> None:
        """Calls `overdue` after `seconds`, unless the run ends or `watch` is called again before."""
        if self.watchdog is not None:
            self.watchdog.cancel()
        self.watchdog = asyncio.get_running_loop().call_later(seconds, overdue)

    def record(self, event: AnyEvent) -> None:
        """Keeps an event, and writes it to the journal."""
        self._journal.append(event)
        self._keep(event)

    def finish(self, event: Terminal) -> None:
        """Keeps the last event; closes the journal."""
        if self.watchdog is not None:
            self.watchdog.cancel()
        self._journal.append(event)
        self._journal.close()
        self._end.set_result(event)
        self._keep(event)

    def _keep(self, event: AnyEvent) -> None:
        self._events.append(event)
        self.last_at = time.monotonic()
        self._more.set()
        self._more = asyncio.Event()


class Judge(Protocol):
    """Judges one kernel at a time; a newer request cancels the run in progress."""

    @property
    def jail(self) -> str:
        """Name of the jail that kernels run in; empty before `start`."""

    async def start(self, setting: Setting | None = None) -> None:
        """Starts what judging needs. `judge` does so, too; this reports an error sooner.

        setting: that of the first run, so that its worlds start now.

        Raises:
            MachineError: it cannot be started.
        """

    async def judge(self, request: RunRequest) -> RunInProgress:
        """Starts a run.

        Raises:
            MachineError: the run's journal cannot be written; nothing was started.
        """


def _ignore(_: AnyEvent) -> None: ...


async def judge_to_verdict(
    judge: Judge, request: RunRequest, listener: Callable[[AnyEvent], None]
) -> tuple[RunInProgress, Judgement]:
    """Judges a request and waits for its verdict. When the waiting task is cancelled, the run is cancelled.

    listener: called with each event of the run until then. With `request.live_s`, the run may go on measuring.

    Raises as `Judge.judge` and `RunInProgress.result`.
    """
    run = await judge.judge(request)
    try:
        async for event in run.events():
            listener(event)
            if isinstance(event, Judged):
                return run, run.judgement(event.result)
        return run, await run.result()
    except BaseException:
        await run.cancel()
        raise


async def judge_to_end(judge: Judge, request: RunRequest, listener: Callable[[AnyEvent], None] = _ignore) -> Judgement:
    """The same for a run that ends with its verdict."""
    return (await judge_to_verdict(judge, request, listener))[1]
