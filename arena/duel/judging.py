"""Judges the kernels of a duel in turn, and times the best ones against each other in the final."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from arena.duel import events
from arena.duel.state import DuelState
from arena.errors import MachineError
from arena.records.run_record import view
from arena.runs.judge import Judge, Judgement, judge_to_end
from arena.runs.run_request import RunRequest
from arena.words.headline import headline_so_far
from problems.specification import Problem
from sandbox.protocol.events import AnyEvent, PhaseStarted, Result, Rival, RunStarted, Timed, Waiting
from sandbox.protocol.kernel_files import Files, Kernel
from sandbox.protocol.verdict import Verdict

TICK_S = 0.1
FINAL_BUDGET = 5.0
"""Time budget of the final, as a multiple of an ordinary run's."""


class DuelJudge:
    """Runs kernels one at a time, in the order of submission."""

    def __init__(
        self,
        judge: Judge,
        problem: Problem,
        state: DuelState,
        tell: Callable[[events.AnyDuelEvent], None],
        now: Callable[[], float],
        *,
        budget_s: float,
    ) -> None:
        """tell: receives the events. now: seconds since the duel began. budget_s: as in a run, for every submission."""
        self._judge = judge
        self._problem = problem
        self._state = state
        self._tell = tell
        self._now = now
        self._budget_s = budget_s
        self._judging = asyncio.Lock()
        self._going = asyncio.Event()
        self._going.set()

    def pause(self) -> None:
        """Stops the start of new runs. The run in progress continues to its end."""
        self._going.clear()

    def resume(self) -> None:
        """Allows new runs again."""
        self._going.set()

    async def going(self) -> None:
        """Blocks while paused."""
        await self._going.wait()

    async def judge(self, name: events.SideName, number: int, kernel: Kernel, kernel_name: str) -> Judgement:
        """Judges a side's submission. number: the number of its attempt, from 1."""

        def measured(event: Timed) -> None:
            headline = headline_so_far(event)
            self._tell(view(events.Measured, headline, event, at=self._now(), side=name, attempt=number))

        rounds = _now_and_then(measured)

        def listen(event: AnyEvent) -> None:
            if isinstance(event, PhaseStarted | Waiting):
                phase = event.phase if isinstance(event, PhaseStarted) else events.WAITING
                self._tell(events.KernelJudging(at=self._now(), side=name, attempt=number, phase=phase))
            rounds(event)

        player = self._state.header.player(name)
        request = RunRequest(
            problem=self._problem,
            setting=self._state.header.setting,
            kernel_name=kernel_name,
            source=kernel.source,
            files=kernel.files,
            kernel_path=player.kernel_path,
            player=player.name,
            budget_s=self._budget_s,
        )
        async with self._turn():
            judgement = await judge_to_end(self._judge, request, listen)
        found = judgement.report
        self._tell(view(events.KernelJudged, found, at=self._now(), side=name, attempt=number, speedup=found.interval))
        return judgement

    async def build(
        self, name: events.SideName, source: str, kernel_name: str, files: Files | None = None
    ) -> Judgement:
        """Compiles a kernel and calls it. This is not a submission."""
        request = RunRequest(
            problem=self._problem,
            setting=self._state.header.setting,
            kernel_name=kernel_name,
            source=source,
            files=files or {},
            player=self._state.header.player(name).name,
            rounds=0,
        )
        async with self._turn():
            return await judge_to_end(self._judge, request)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        async with self._judging:
            await self._going.wait()
            yield

    async def final(self) -> Result:
        """Times the best kernels of both sides against each other.

        Raises:
            MachineError: the final could not be run.
        """
        state = self._state
        left, right = state.left.best, state.right.best
        assert left is not None
        assert right is not None

        def measured(event: Timed) -> None:
            self._tell(view(events.FinalMeasured, headline_so_far(event), event, at=self._now()))

        header = state.header
        request = RunRequest(
            problem=self._problem,
            setting=header.setting,
            kernel_name=f"{_file_name(header.left.name)}.py",
            source=left.source,
            files=left.files,
            player=header.left.name,
            budget_s=self._budget_s * FINAL_BUDGET,
            versus=Rival(f"{_file_name(header.right.name)}.py", right.source, right.files),
        )
        now_and_then = _now_and_then(measured)

        def listen(event: AnyEvent) -> None:
            if isinstance(event, RunStarted):
                began = events.FinalBegan(at=self._now(), left=left.number, right=right.number, run_id=event.run_id)
                self._tell(began)
            now_and_then(event)

        result = (await judge_to_end(self._judge, request, listen)).result
        if not result.rival or result.verdict is Verdict.HARNESS_ERROR:
            raise MachineError(f"the final could not be run: {result.detail}", "play the duel again")
        return result


def _now_and_then(tell: Callable[[Timed], None]) -> Callable[[AnyEvent], None]:
    """Returns a listener that passes on one `Timed` event per tick, and the one of the last round."""
    told = 0.0

    def listen(event: AnyEvent) -> None:
        nonlocal told
        if isinstance(event, Timed) and (time.monotonic() - told >= TICK_S or event.round == event.rounds):
            told = time.monotonic()
            tell(event)

    return listen


def _file_name(player: str) -> str:
    """Returns a player's name as a valid file name, without a suffix."""
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in player) or "kernel"
