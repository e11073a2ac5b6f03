"""A run of the engine: its journal, its events so far, and how it ended."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from arena.errors import RunCancelled, RunRefused
from arena.records.header import RunHeader
from arena.records.json_lines import Journal
from arena.runs.judge import Judgement
from arena.words.untrusted_text import printable
from sandbox.protocol.events import AnyEvent, Cancelled, Finished, Log, Refused

PRINTED_CHARACTERS = 4000

Terminal = Finished | Cancelled | Refused


class EngineRun:
    """Implements `arena.runs.judge.RunInProgress`. The engine calls `watch`, `record` and `finish`."""

    def __init__(self, header: RunHeader, journal: Journal, cancel: Callable[["EngineRun"], Awaitable[None]]) -> None:
        """cancel: ends the run, and returns when it has ended."""
        self.header = header
        self.phase = "prepare"
        """The phase in progress, or the last one."""
        self.last_at = time.monotonic()
        """Time of its last event, on this process's monotonic clock."""
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
    def events_so_far(self) -> tuple[AnyEvent, ...]:
        """All events that have come, in order."""
        return tuple(self._events)

    async def events(self) -> AsyncIterator[AnyEvent]:
        """Yields the run's events from the first one on, also when it is called late."""
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
        """As `RunInProgress.result`."""
        end = await self.end()
        if isinstance(end, Refused):
            raise RunRefused(end.message, end.advice)
        if isinstance(end, Cancelled):
            raise RunCancelled(f"the run was cancelled in its phase {end.phase}", "start it again")
        # Logs without a rank are from the referee, not from a kernel.
        logs = (event for event in self._events if isinstance(event, Log) and event.rank >= 0)
        printed = (f"[rank {log.rank}] {printable(log.text)}" for log in logs)
        return Judgement(self.header, end.result, "".join(printed)[:PRINTED_CHARACTERS])

    async def cancel(self) -> None:
        """As `RunInProgress.cancel`."""
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
