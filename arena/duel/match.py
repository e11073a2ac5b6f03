"""Plays a duel: both sides play at the same time, kernels are judged in turn, and a final compares the best ones."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from arena.duel import events
from arena.duel.journal import open_duel_journal
from arena.duel.judging import DuelJudge
from arena.duel.opening import Players
from arena.duel.state import DuelState, after_final, without_final
from arena.errors import ArenaError, MachineError, PlayerFailed
from arena.machine.facts import require_jail
from arena.paths import Paths
from arena.players.player import KernelAccess, Submission, Task
from arena.players.trace import Answered, AnyTraceEvent, Called, Counted, Drafted, Retried, Wrote
from arena.runs.judge import Judge, Judgement
from arena.words.untrusted_text import printable
from arena.workspace.kernels import Workspace
from arena.workspace.named_kernels import BASELINE
from problems.specification import Problem
from sandbox.protocol.kernel_files import Files, Kernel
from sandbox.protocol.verdict import Verdict

TICK_S = 0.1

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
        unsafe: bool = False,
    ) -> None:
        """budget_s: as in a run, for every submission. unsafe: models' kernels may run without a jail.

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
        self._kernels = DuelJudge(judge, problem, self.state, self.tell, lambda: self.now, budget_s=budget_s)
        self._started = time.monotonic()
        self._playing: dict[events.SideName, asyncio.Task[None]] = {}
        self._why: dict[events.SideName, str] = {}
        self._judgements: dict[asyncio.Task[Judgement], events.SideName] = {}
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
            self._kernels.pause()
            self.tell(events.Paused(at=self.now))

    def resume(self) -> None:
        """Starts the clock again."""
        if self.state.stage == "paused":
            self.tell(events.Resumed(at=self.now))
            self._kernels.resume()

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
            await self._judge.start()
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
        self._journal.close()

    async def _play_sides(self) -> None:
        for name in events.SIDES:
            self._playing[name] = asyncio.create_task(self._play_side(name))
        clock = asyncio.create_task(self._run_clock())
        try:
            await asyncio.gather(*self._playing.values())
        finally:
            clock.cancel()
        await asyncio.gather(*list(self._judgements), return_exceptions=True)

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
        known = [(attempt.source, attempt.files) for attempt in self.state.side(name).attempts]
        out = self.state.over or self._why.get(name) == "gave up"
        if out or last.source is None or (last.source, last.files) in known:
            return None
        return self._submit(name, last.source, last.file_name, last.files)

    async def submit(
        self, name: events.SideName, source: str, kernel_name: str, files: Files | None = None
    ) -> Judgement:
        """Judges a kernel in its turn. The run continues if the caller is cancelled."""
        return await asyncio.shield(self._submit(name, source, kernel_name, files or {}))

    def _submit(self, name: events.SideName, source: str, kernel_name: str, files: Files) -> asyncio.Task[Judgement]:
        number = len(self.state.side(name).attempts) + 1
        text = source if source or kernel_name != BASELINE else self.problem.baseline_source
        sha256 = Workspace(self.paths.workspace).keep_revision(text, files)
        self.tell(events.Submitted(at=self.now, side=name, attempt=number, sha256=sha256, source=text, files=files))
        task = asyncio.create_task(self._kernels.judge(name, number, Kernel(source, files), kernel_name))
        self._judgements[task] = name
        task.add_done_callback(lambda done: self._judgements.pop(done, None))
        return task

    async def build(
        self, name: events.SideName, source: str, kernel_name: str, files: Files | None = None
    ) -> Judgement:
        """Compiles a kernel and calls it in its turn. This is not a submission."""
        return await self._kernels.build(name, source, kernel_name, files)

    # --- the final -------------------------------------------------------------------------------------------

    async def _decide(self) -> events.DuelEnded:
        for name in events.SIDES:
            last = self.state.side(name).last
            judged = last.judged if last is not None else None
            if self.state.side(name).best is None and judged and judged.verdict is Verdict.HARNESS_ERROR:
                raise MachineError(judged.detail, "play the duel again")
        await self._kernels.going()  # the duel may be paused since the last run, and a side may still give up
        if self.state.left.best is None or self.state.right.best is None:
            return without_final(self.state, self.now)
        return after_final(self.state, await self._kernels.final(), self.now)


class MatchAccess(KernelAccess):
    """A side's kernel access. Every kernel passed to `judge` is a submission."""

    def __init__(self, match: Match, name: events.SideName) -> None:
        self.steps = match.state.header.rounds
        self.clocked = match.state.header.minutes is not None
        self._match = match
        self._name = name

    async def judge(self, source: str, name: str, files: Files | None = None) -> Judgement:
        return await self._match.submit(self._name, source, name, files)

    async def build(self, source: str, name: str, files: Files | None = None) -> Judgement:
        return await self._match.build(self._name, source, name, files)

    def interrupted(self, newest: Submission) -> None:
        self._match.submit_last(self._name, newest)

    def hear(self, event: AnyTraceEvent) -> None:
        duel, side, now = self._match, self._name, self._match.now
        match event:
            case Wrote() | Drafted():
                attempt = len(duel.state.side(side).attempts) + 1
                duel.tell(events.SideWrote(at=now, side=side, attempt=attempt, text=event.text))
            case Counted(spent=spent):
                duel.tell(
                    events.Spending(at=now, side=side, tokens=spent.tokens, usd=spent.usd, estimated=spent.estimated)
                )
            case Retried():
                self.warn(f"asked again in {event.wait_s:.0f} s: {event.reason}")
            case Called():
                self.warn(f"calls {printable(event.tool)}")
            case Answered() if event.reason:
                self.warn(event.reason)

    def warn(self, text: str) -> None:
        self._match.tell(events.Said(at=self._match.now, side=self._name, text=text))
