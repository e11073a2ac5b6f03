"""A model that writes kernels for one problem: prompts, verdicts, stopping; without widgets."""

import asyncio
import time
from dataclasses import dataclass, replace

from arena.errors import ArenaError
from arena.players.judge_access import JudgeAccess, keep_revisions, save_best
from arena.players.player import Player, Task
from arena.players.trace import AnyTraceEvent
from arena.players.writing_state import WritingState
from arena.records.run_record import RunRecord
from arena.runs.origin import Origin, known_origin
from arena.runs.other_sizes import OtherSizesProgress
from arena.runs.run_state import RunState
from arena.words.untrusted_text import printable
from problems.specification import Problem
from sandbox.protocol.events import AnyEvent, Setting
from screens.services import Services


@dataclass(frozen=True)
class ModelPlan:
    """The model that is asked, and the number of answers."""

    player: Player
    improves: bool
    """Whether it gets every verdict and writes again; else its answers are independent of each other."""
    answers: int
    limit: str = ""
    """The spending limit, in words; empty if there is none."""
    origin: Origin | None = None
    """The kernel to improve."""
    other_sizes: bool = False
    """Whether correct kernels are judged at other sizes, too."""

    @property
    def words(self) -> str:
        """ "improves kernel.py by verdicts · ≤ 10 answers, $2"."""
        start = f" {printable(self.origin.name)}" if self.origin is not None else ""
        how = f"improves{start} by verdicts" if self.improves else f"independent answers{' from' * bool(start)}{start}"
        count = f"{self.answers} answer{'s' if self.answers != 1 else ''}"
        sizes = " · other sizes, too" if self.other_sizes else ""
        return f"{how}{sizes} · ≤ {count}{f', {self.limit}' if self.limit else ''}"


class ModelSession:
    """The state and the work behind a model screen."""

    def __init__(self, services: Services, problem: Problem, setting: Setting, plan: ModelPlan) -> None:
        self.services = services
        self.problem = problem
        self.setting = setting
        self.plan = plan
        self.state = WritingState()
        self.run = RunState()
        """The run of the kernel that is being judged."""
        self.changed = True
        """Whether the state changed since the screen last drew."""
        self.path = ""
        """The file with the best kernel, once the work is over."""
        self.over = False
        """Whether the work has ended."""
        self.failed = ""
        """Why the work failed, and what to do; empty unless it failed."""
        self.compared: RunRecord | None = None
        """The result of the best kernel against the one that it started from."""
        self.comparing = False
        self.notice = ""
        self.elsewhere = ""
        """The other setting in which a kernel is judged now; empty while none is."""
        self._heard_at = time.monotonic()

    async def work(self) -> None:
        """Runs the model and judges its kernels until it is done. Keeps its kernels, also after an error.

        Raises:
            ArenaError: the provider, the judge or the machine failed.
        """
        services, origin = self.services, self.plan.origin
        task = Task(self.problem, self.setting, origin=origin)
        unsubscribe = services.engine.subscribe(self._judged_on)
        access = JudgeAccess(
            services.engine,
            task,
            str(self.plan.player.name),
            steps=self.plan.answers,
            budget_s=services.settings.seconds,
            other_sizes=self.plan.other_sizes,
            hear=self.hear,
            warn=self._warn,
            hear_other_size=self._elsewhere,
        )
        try:
            await access.start()
            if origin is not None:
                task = replace(task, origin=await self._known(origin, access))
            try:
                await self.plan.player.play(task, access)
            finally:
                self.path = await asyncio.to_thread(self._keep, access)
            await self._compare(access)
        except ArenaError as error:
            self.failed = error.one_line
            raise
        finally:
            self.over = self.changed = True
            unsubscribe()

    async def _known(self, origin: Origin, access: JudgeAccess) -> Origin:
        """Returns the origin with its verdict and its profile."""
        known = await asyncio.to_thread(
            known_origin, origin.name, origin.kernel, self.problem, self.setting, self.services.paths, origin.player
        )
        return await access.judge_origin(known)

    async def _compare(self, access: JudgeAccess) -> None:
        self.comparing = self.changed = True
        try:
            judgement = await access.compare()
        finally:
            self.comparing = False
        self.compared = judgement.report if judgement is not None else None

    def _keep(self, access: JudgeAccess) -> str:
        best = keep_revisions(self.services.workspace, access.attempts)
        if best is None:
            return ""
        return str(save_best(self.services.workspace, self.problem, str(self.plan.player.name), best))

    # --- what happens --------------------------------------------------------------------------------------

    def hear(self, event: AnyTraceEvent) -> None:
        """Applies an event of the model, or of its judge."""
        self._heard_at = time.monotonic()
        self.elsewhere = ""
        self.state.apply(event)
        self.changed = True

    def _elsewhere(self, progress: OtherSizesProgress) -> None:
        self.elsewhere = progress.words
        self.changed = True

    def _judged_on(self, event: AnyEvent) -> None:
        self.run.apply(event)
        self.changed = True

    def _warn(self, text: str) -> None:
        self.notice = text
        self.changed = True

    @property
    def now(self) -> float:
        """Seconds on the clock of the trace; stops when the work has ended."""
        return self.state.at if self.over else self.state.at + time.monotonic() - self._heard_at
