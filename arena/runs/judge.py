"""The interface of everything that judges kernels: judge a request, stream its events, cancel it.

`arena.runs.engine.Engine` is the implementation for this machine.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from arena.records.header import RunHeader
from arena.records.run_record import OtherSize, RunRecord, record_of
from arena.runs.run_request import RunRequest
from sandbox.protocol.events import AnyEvent, Result


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


class RunInProgress(Protocol):
    """One run of a judge. It goes on whether or not its result is awaited."""

    @property
    def header(self) -> RunHeader:
        """The request, and the run's id."""

    def events(self) -> AsyncIterator[AnyEvent]:
        """Yields the run's events from the first one on, also when it is called late.

        The last one is Finished, Cancelled or Refused.
        """

    async def result(self) -> Judgement:
        """Waits until the run has finished.

        Raises:
            RunRefused: the setting cannot be run.
            RunCancelled: the run was cancelled, or a newer one took its place.
        """

    async def cancel(self) -> None:
        """Ends the run and waits until it has ended. Does nothing when it has ended already."""


class Judge(Protocol):
    """Judges one kernel at a time; a newer request cancels the run in progress."""

    @property
    def jail(self) -> str:
        """Name of the jail that kernels run in; empty before `start`."""

    async def start(self) -> None:
        """Starts what judging needs. `judge` does so, too; this only reports an error sooner.

        Raises:
            MachineError: it cannot be started.
        """

    async def judge(self, request: RunRequest) -> RunInProgress:
        """Starts a run.

        Raises:
            MachineError: the run's journal cannot be written; nothing was started.
        """


def _ignore(_: AnyEvent) -> None: ...


async def judge_to_end(judge: Judge, request: RunRequest, listener: Callable[[AnyEvent], None] = _ignore) -> Judgement:
    """Judges a request and waits for its end. When the waiting task is cancelled, the run is cancelled.

    listener: called with each event of the run.

    Raises:
        RunRefused: the setting cannot be run.
        RunCancelled: the run was cancelled, or a newer one took its place.
        MachineError: the run's journal cannot be written; nothing was started.
    """
    run = await judge.judge(request)
    try:
        async for event in run.events():
            listener(event)
        return await run.result()
    except BaseException:
        await run.cancel()
        raise
