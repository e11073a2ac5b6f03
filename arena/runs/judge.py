"""The interface of everything that judges kernels: judge a request, stream its events, cancel it.

`arena.runs.engine.Engine` is the implementation for this machine.
"""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from arena.machine.facts import this_machine
from arena.records.header import RunHeader, new_id
from arena.records.run_record import OtherSize, RunRecord, record_of, view
from arena.workspace.named_kernels import BASELINE
from problems.specification import Problem
from sandbox.protocol.events import AnyEvent, Finished, Result, Rival, Setting
from sandbox.protocol.kernel_files import Files, kernel_hash
from sandbox.protocol.result import harness_error_result

MOST_ROUNDS = 10_000
PERSON, SWEEP = 0, 1
"""As `sandbox.referee.lease.Urgency`."""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One kernel to judge in one setting."""

    problem: Problem
    setting: Setting
    kernel_name: str
    """Shown in tracebacks; the word `baseline` with an empty source runs the baseline against itself."""
    source: str
    files: Files = field(default_factory=dict)
    """The other files of a kernel of several files; then `source` is the text of its kernel.py."""
    kernel_path: str = ""
    player: str = "you"
    rounds: int | None = None
    """None = as many as fit the measuring time; 0 = correctness only."""
    budget_s: float = 2.5
    """Measuring time in seconds. Timing stops when both clocks can conclude, at the latest after this time."""
    versus: Rival | None = None
    """Another kernel in the baseline's place, as in a duel's final. Without `origin`, such a run is in no index."""

    origin: str = ""
    """SHA-256 of the kernel that the player started from. With `versus`, that kernel takes the baseline's place."""
    energy: bool = False
    """Whether to measure the energy of a call, too."""
    live_s: float = 0.0
    """Seconds that measuring goes on after the verdict, unless something newer is asked."""
    urgency: int = PERSON
    """Who waits for the devices first: PERSON or SWEEP."""
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
    source = request.source if request.source or request.kernel_name != BASELINE else problem.baseline_source
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


def harness_error(header: RunHeader, phase: str, message: str, text: str = "") -> Finished:
    """Returns the end of a run whose referee failed."""
    result = harness_error_result(phase, message, text)
    return Finished(run_id=header.run_id, sha256=header.sha256, result=result)


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
