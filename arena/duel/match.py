"""Plays a duel: both sides play at the same time, kernels are judged in turn, and a final compares the best ones."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from msgspec.structs import replace

from arena.duel import events
from arena.duel.events import DuelHeader, DuelPlayer, Kind
from arena.duel.journal import open_duel_journal
from arena.duel.state import DuelState, after_final, without_final
from arena.errors import ArenaError, MachineError, PlayerFailed
from arena.machine.facts import require_jail
from arena.models.budget import BudgetPool
from arena.paths import Paths
from arena.players.make_player import make_player_or_file
from arena.players.player import KernelAccess, Player, PlayerKind, PlayerSetup, Submission, Task
from arena.players.trace import Answered, AnyTraceEvent, Called, Counted, Drafted, Retried, Wrote
from arena.records.header import new_id
from arena.records.run_record import RunRecord, view
from arena.runs.judge import Judge, Judgement, RunInProgress, RunRequest, judge_to_end, judge_to_verdict
from arena.words.headline import headline_so_far
from arena.words.untrusted_text import printable
from arena.workspace.kernels import Workspace
from arena.workspace.named_kernels import BASELINE, HOUSE
from problems.specification import Problem
from sandbox.protocol.events import (
    AnyEvent,
    Contender,
    Finished,
    Judged,
    PhaseStarted,
    Result,
    RunStarted,
    Setting,
    Timed,
    Waiting,
)
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict

Players = tuple[Player, Player]
"""Left and right."""
_KINDS: dict[PlayerKind, Kind] = {
    PlayerKind.NAMED: "baseline",
    PlayerKind.FILE: "file",
    PlayerKind.USER: "file",
    PlayerKind.MODEL: "model",
    PlayerKind.AGENT: "model",
}


def duel_players(
    words: tuple[str, str], owners: tuple[str, str], task: Task, setup: PlayerSetup, budget_usd: float | None = None
) -> Players:
    """Creates the players for two names or paths. May take seconds: see `make_player`.

    owners: owners of the kernel files. budget_usd: dollars that each side may spend; None: no limit.

    Raises:
        UsageError, MachineError: a player cannot play this problem in this setting.
    """
    setups = [dataclasses.replace(setup, pool=BudgetPool(budget_usd)) for _ in words]
    left, right = map(make_player_or_file, words, owners, [task, task], setups)
    return left, right


def new_header(
    problem: Problem,
    setting: Setting,
    players: Players,
    minutes: float | None = None,
    rounds: int = 1,
    budget_usd: float | None = None,
) -> DuelHeader:
    """Returns the header of a duel that begins now. Draws a new duel id."""
    return view(
        DuelHeader, problem,
        duel_id=new_id(),
        created=time.time(),
        problem_id=problem.id,
        left=_facts(players[0]),
        right=_facts(players[1]),
        setting=setting,
        preset_sizes=setting.sizes == problem.presets.get(setting.preset),
        minutes=minutes,
        rounds=rounds,
        budget_usd=budget_usd,
    )  # fmt: skip


def _facts(player: Player) -> DuelPlayer:
    name = str(player.name)
    return DuelPlayer("house" if name == HOUSE else _KINDS[player.name.kind], name, player.kernel_path)


TICK_S = 0.1
FINAL_BUDGET = 5.0
"""Time budget of the final, as a multiple of an ordinary run's."""


def _file_name(player: str) -> str:
    """Returns a player's name as a valid file name, without a suffix."""
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in player) or "kernel"


Listener = Callable[[events.AnyDuelEvent], None]


class Match:
    """One duel. Call `play` once. All events go to the journal and to the listeners."""

    def __init__(
        self,
        judge: Judge,
        paths: Paths,
        problem: Problem,
        header: events.DuelHeader,
        players: Players,
        *,
        budget_s: float = 2.5,
        live_s: float = 0.0,
        unsafe: bool = False,
    ) -> None:
        """budget_s, live_s: as in a run, for every submission. unsafe: models' kernels may run without a jail.

        Raises:
            FolderUnwritable: the duel's journal cannot be written.
        """
        self._judge = judge
        self.paths = paths
        self.problem = problem
        self.state = DuelState(header)
        self.players = dict(zip(events.SIDES, players, strict=True))
        self.unsafe = unsafe
        self.listeners: list[Listener] = []
        self._budget_s, self._live_s = budget_s, live_s
        self._judging = asyncio.Lock()
        self._going = asyncio.Event()
        """Not set while the duel is paused."""
        self._going.set()
        self._started = time.monotonic()
        self._playing: dict[events.SideName, asyncio.Task[None]] = {}
        self._why: dict[events.SideName, str] = {}
        self._judgements: dict[asyncio.Task[Judgement], events.SideName] = {}
        self._measuring: tuple[RunInProgress, asyncio.Task[None]] | None = None
        """The newest run with a verdict that went on measuring, and what tells of it."""
        self._journal = open_duel_journal(
            paths, header, lambda error: self._say_to_all(f"this duel's journal is incomplete: {error}")
        )

    # --- controls ------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the duel began."""
        return round(time.monotonic() - self._started, 4)

    def pause(self) -> None:
        """Stops the clock and the start of new runs. The run in progress continues to its end."""
        if self.state.stage == "playing":
            self._going.clear()
            self.tell(events.Paused(at=self.now))

    def resume(self) -> None:
        """Starts the clock again."""
        if self.state.stage == "paused":
            self.tell(events.Resumed(at=self.now))
            self._going.set()

    @property
    def measuring_on(self) -> bool:
        """Whether a run goes on measuring after its verdict."""
        return self._measuring is not None and not self._measuring[0].ended

    async def end_measuring(self) -> None:
        """Ends a run that goes on measuring after its verdict. What was measured is kept."""
        if self._measuring is not None:
            run, following = self._measuring
            await run.cancel()
            await following

    def agree(self, side: events.SideName) -> None:
        """Ends a side's play. Its submissions are still judged."""
        self._leave(side, "agreed")

    def give_up(self, side: events.SideName) -> None:
        """Ends a side's play. None of its kernels counts."""
        if self.state.stage not in ("playing", "paused"):
            return
        for task, owner in self._judgements.items():
            if owner == side:
                task.cancel()
        if self.state.side(side).left:
            self.tell(events.Left(at=self.now, side=side, reason="gave up"))
        self._leave(side, "gave up")
        if self.state.side(events.other(side)).best is not None:  # it has won
            self._leave(events.other(side), "done")

    def _leave(self, side: events.SideName, why: str) -> None:
        task = self._playing.get(side)
        if task is not None and not task.done() and side not in self._why:
            self._why[side] = why
            task.cancel()

    def tell(self, event: events.AnyDuelEvent) -> None:
        """Applies an event to the state, writes it to the journal and calls the listeners. Ignores events after the end."""
        if self.state.over:
            return
        self.state.apply(event)
        self._journal.append(event)
        for listener in list(self.listeners):
            listener(event)

    def _tells_rounds(
        self, kind: type[events.Measured | events.FinalMeasured], **of: Any
    ) -> Callable[[AnyEvent], None]:
        """Returns a listener that tells of one timed round per tick, and of the last one. of: further fields."""
        told = 0.0

        def listen(event: AnyEvent) -> None:
            nonlocal told
            if isinstance(event, Timed) and (time.monotonic() - told >= TICK_S or event.round == event.rounds):
                told = time.monotonic()
                self.tell(view(kind, headline_so_far(event), event, at=self.now, **of))

        return listen

    def _say_to_all(self, text: str) -> None:
        for side in events.SIDES:
            self.tell(events.Said(at=self.now, side=side, text=text))

    # --- phases of the duel ----------------------------------------------------------------------------------

    async def play(self) -> events.DuelEnded:
        """Plays the whole duel.

        Raises:
            ArenaError: the harness failed; the duel counts for neither player.
        """
        self._started = time.monotonic()
        try:
            await self._judge.start(self.state.header.setting)
            if any(self.state.header.player(side).kind == "model" for side in events.SIDES):
                require_jail(self._judge.jail, self.unsafe)
            await self._play_sides()
            ended = await self._decide()
            self.tell(ended)
            return ended
        except asyncio.CancelledError:
            self.tell(events.Abandoned(at=self.now, reason="it was cancelled"))
            raise
        except ArenaError as error:
            self.tell(events.Abandoned(at=self.now, reason=error.message))
            raise
        finally:
            await self._end_everything()

    async def _end_everything(self) -> None:
        tasks: list[asyncio.Task[Any]] = [*self._playing.values(), *self._judgements]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.end_measuring()
        self._journal.close()

    async def _play_sides(self) -> None:
        for name in events.SIDES:
            self._playing[name] = asyncio.create_task(self._play_side(name))
        clock = asyncio.create_task(self._run_clock())
        try:
            await asyncio.gather(*self._playing.values())
        finally:
            clock.cancel()
        await asyncio.gather(*self._judgements, return_exceptions=True)

    async def _run_clock(self) -> None:
        while self.state.remaining(self.now) != 0.0:
            await asyncio.sleep(TICK_S)
        for name in events.SIDES:
            self._leave(name, "time")

    async def _play_side(self, name: events.SideName) -> None:
        try:
            task = Task(self.problem, self.state.header.setting)
            submission = await self.players[name].play(task, MatchAccess(self, name))
            if (last := self.submit_last(name, submission)) is not None:
                await asyncio.shield(last)
            reason = self._words_of(submission.ended)
        except asyncio.CancelledError:
            if name not in self._why:
                raise
            reason = self._why[name]
        except PlayerFailed as error:
            reason = f"{events.FAILED}{error.message}"
        self.tell(events.Left(at=self.now, side=name, reason=reason))

    def _words_of(self, ended: str) -> str:
        """Converts `Submission.ended` to the side's end reason in the journal."""
        if ended == "budget":
            return f"the budget of ${self.state.header.budget_usd:g} is spent"
        return "done" if ended == "steps" else ended

    # --- judging ---------------------------------------------------------------------------------------------

    def submit_last(self, name: events.SideName, last: Submission) -> asyncio.Task[Judgement] | None:
        """Submits a player's last kernel, unless it was submitted before, the player gave up, or the duel is over."""
        known = [attempt.kernel for attempt in self.state.side(name).attempts]
        out = self.state.over or self._why.get(name) == "gave up"
        if out or last.kernel is None or last.kernel in known:
            return None
        return self._submit(name, last.kernel, last.file_name)

    async def submit(self, name: events.SideName, kernel: Kernel, kernel_name: str) -> Judgement:
        """Judges a kernel in its turn. The run continues if the caller is cancelled."""
        return await asyncio.shield(self._submit(name, kernel, kernel_name))

    def _submit(self, name: events.SideName, kernel: Kernel, kernel_name: str) -> asyncio.Task[Judgement]:
        number, files = len(self.state.side(name).attempts) + 1, kernel.files
        text = kernel.source if kernel.source or kernel_name != BASELINE else self.problem.baseline_source
        sha256 = Workspace(self.paths.workspace).keep_revision(text, files)
        self.tell(events.Submitted(at=self.now, side=name, attempt=number, sha256=sha256, source=text, files=files))
        task = asyncio.create_task(self._judge_one(name, number, kernel, kernel_name))
        self._judgements[task] = name
        task.add_done_callback(lambda done: self._judgements.pop(done, None))
        return task

    async def build(self, name: events.SideName, kernel: Kernel, kernel_name: str) -> Judgement:
        """Compiles a kernel and calls it in its turn. This is not a submission."""
        request = self._request(name, kernel, kernel_name)
        async with self._turn():
            return await judge_to_end(self._judge, replace(request, rounds=0))

    async def _judge_one(self, name: events.SideName, number: int, kernel: Kernel, kernel_name: str) -> Judgement:
        """Judges a side's submission in its turn. number: the number of its attempt, from 1.

        The run may go on measuring after its verdict, until another is asked for.
        """
        tell_round = self._tells_rounds(events.Measured, side=name, attempt=number)

        def listen(event: AnyEvent) -> None:
            if isinstance(event, PhaseStarted | Waiting):
                phase = event.phase if isinstance(event, PhaseStarted) else f"{events.WAITING} ({event.words})"
                self.tell(events.KernelJudging(at=self.now, side=name, attempt=number, phase=phase))
            tell_round(event)

        path = self.state.header.player(name).kernel_path
        request = replace(self._request(name, kernel, kernel_name), kernel_path=path, live_s=self._live_s)
        async with self._turn():
            run, judgement = await judge_to_verdict(self._judge, request, listen)
            self._tell_verdict(name, number, judgement.report)
            if not run.ended:
                self._measuring = (run, asyncio.create_task(self._measure_on(name, number, run)))
        return judgement

    async def _measure_on(self, name: events.SideName, number: int, run: RunInProgress) -> None:
        """Tells what a run measures after its verdict, until it ends."""
        self.tell(events.KernelJudging(at=self.now, side=name, attempt=number, phase=events.MEASURING_ON))
        async for event in run.events():
            if isinstance(event, Judged | Finished):
                self._tell_verdict(name, number, run.judgement(event.result).report)
        self.tell(events.KernelJudging(at=self.now, side=name, attempt=number, phase=""))

    def _tell_verdict(self, name: events.SideName, number: int, found: RunRecord) -> None:
        """Tells a verdict; after it, only the speedup of a longer measurement, unless the kernel has failed in it."""
        of = {"at": self.now, "side": name, "attempt": number, "speedup": found.interval}
        before = self.state.side(name).attempts[number - 1].judged
        if before is None or found.verdict is not before.verdict:
            self.tell(view(events.KernelJudged, found, **of))
        elif found.interval not in (None, before.speedup):
            self.tell(view(events.Measured, found, round=found.rounds, **of))

    def _request(self, name: events.SideName, kernel: Kernel, kernel_name: str) -> RunRequest:
        header = self.state.header
        player = header.player(name).name
        of = {"problem": self.problem, "setting": header.setting, "kernel_name": kernel_name, "player": player}
        return view(RunRequest, kernel, budget_s=self._budget_s, **of)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Kernels run one at a time, in the order of submission."""
        async with self._judging:
            await self._going.wait()
            yield

    # --- the final -------------------------------------------------------------------------------------------

    async def _decide(self) -> events.DuelEnded:
        for name in events.SIDES:
            last = self.state.side(name).last
            judged = last.judged if last is not None else None
            if self.state.side(name).best is None and judged and judged.verdict is Verdict.HARNESS_ERROR:
                raise MachineError(judged.detail, "play the duel again")
        await self._going.wait()  # the duel may be paused since the last run, and a side may still give up
        await self.end_measuring()
        if self.state.left.best is None or self.state.right.best is None:
            return without_final(self.state, self.now)
        return after_final(self.state, await self._final(), self.now)

    async def _final(self) -> Result:
        """Times the best kernels of both sides against each other.

        Raises:
            MachineError: the final could not be run.
        """
        left, right = self.state.left.best, self.state.right.best
        assert left is not None
        assert right is not None
        tell_round = self._tells_rounds(events.FinalMeasured)

        def listen(event: AnyEvent) -> None:
            if isinstance(event, RunStarted):
                self.tell(events.FinalBegan(at=self.now, left=left.number, right=right.number, run_id=event.run_id))
            tell_round(event)

        ours, theirs = (f"{_file_name(self.state.header.player(name).name)}.py" for name in events.SIDES)
        rival = Contender(theirs, right.kernel.source, right.kernel.files)
        request = self._request("left", left.kernel, ours)
        request = replace(request, budget_s=self._budget_s * FINAL_BUDGET, versus=rival)
        result = (await judge_to_end(self._judge, request, listen)).result
        if not result.rival or result.verdict is Verdict.HARNESS_ERROR:
            raise MachineError(f"the final could not be run: {result.detail}", "play the duel again")
        return result


class MatchAccess(KernelAccess):
    """A side's kernel access. Every kernel passed to `judge` is a submission."""

    def __init__(self, match: Match, name: events.SideName) -> None:
        self.steps = match.state.header.rounds
        self.clocked = match.state.header.minutes is not None
        self._match = match
        self._name = name

    async def judge(self, kernel: Kernel, name: str) -> Judgement:
        return await self._match.submit(self._name, kernel, name)

    async def build(self, kernel: Kernel, name: str) -> Judgement:
        return await self._match.build(self._name, kernel, name)

    def interrupted(self, newest: Submission) -> None:
        self._match.submit_last(self._name, newest)

    def hear(self, event: AnyTraceEvent) -> None:
        duel, side, now = self._match, self._name, self._match.now
        match event:
            case Wrote() | Drafted():
                attempt = len(duel.state.side(side).attempts) + 1
                duel.tell(events.SideWrote(at=now, side=side, attempt=attempt, text=event.text))
            case Counted(spent=spent):
                duel.tell(view(events.Spending, spent, at=now, side=side))
            case Retried():
                self.warn(f"asked again in {event.wait_s:.0f} s: {event.reason}")
            case Called():
                self.warn(f"calls {printable(event.tool)}")
            case Answered() if event.reason:
                self.warn(event.reason)

    def warn(self, text: str) -> None:
        self._match.tell(events.Said(at=self._match.now, side=self._name, text=text))
