"""What the frameworks share: problems with their prompts, the judge of this process, and a verdict as numbers."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from arena import Arena, reward
from arena.board.definitions import is_fast
from arena.board.scorecard import NOISY
from arena.errors import MachineError
from arena.machine.facts import require_jail
from arena.models.answer import ModelAnswer
from arena.models.budget import Spent
from arena.models.conversation import Finish
from arena.players.attempts import Attempt
from arena.players.feedback import build_words, fenced_kernel, judgement_words
from arena.players.prompt import SHOTS, build_prompt
from arena.records.run_record import json_of
from arena.runs.judge import Judgement
from arena.setting_choice import Choice, choose_setting
from arena.sweep.records import choose_problems
from problems.specification import Problem
from sandbox.protocol.events import Setting
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict

TRIES = 2
"""Times that a kernel is judged if the harness fails."""
NUMBERS = ("correct", "faster", "speedup", "fast_1", "fast_1_5", "fast_2", "share_of_bound", "reward")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Which problems are given, in which setting, and how kernels are judged. None: as for `pkb-arena run`."""

    problems: str = "all"
    """As `sweep --problems`: "category:collective", "class:B", "1-8,13"."""
    preset: str | None = None
    world: int | None = None
    device: str | None = None
    dtype: str | None = None
    rounds: int | None = None
    budget_s: float | None = None
    """Measuring time of a run in seconds, at most."""
    shots: int = SHOTS
    unsafe: bool = False
    """Whether kernels may run without a jail."""

    @property
    def options(self) -> dict[str, Any]:
        """The options of `Arena.judge`."""
        names = ("preset", "world", "device", "dtype", "rounds", "budget_s")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True)
class Row:
    """One problem in its setting, with the prompt that a sweep would send."""

    problem: Problem
    setting: Setting
    system: str
    user: str

    @property
    def facts(self) -> dict[str, Any]:
        """Facts to filter and group results by."""
        setting, problem = self.setting, self.problem
        facts = {"problem": problem.stem, "id": problem.id, "category": problem.category, "class": problem.class_}
        return facts | {
            "preset": setting.preset,
            "device": setting.device,
            "world": setting.world,
            "dtype": setting.dtype,
        }


def rows(terms: Terms) -> list[Row]:
    """Returns the problems of an evaluation. May take seconds.

    Raises:
        UsageError: no such problem, or it cannot be run in this setting.
    """
    arena = Arena()
    choice = Choice(preset=terms.preset, world=terms.world, device=terms.device, dtype=terms.dtype)
    found = []
    for problem in choose_problems(arena.catalogue, [terms.problems]):
        setting = choose_setting(problem, choice, arena.settings)
        conversation = build_prompt(problem, setting, arena.catalogue, arena.paths, terms.shots).conversation
        found.append(Row(problem, setting, conversation.system, str(conversation.messages[0].content)))
    return found


class SharedJudge:
    """One arena for a process: kernels are judged in turn, whatever the framework does at the same time."""

    def __init__(self, make: Callable[[], Arena] = Arena) -> None:
        """make: makes the arena, on first use."""
        self._make = make
        self._arena: Arena | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()

    async def judge(self, terms: Terms, problem: str, kernel: Kernel, player: str, *, timed: bool = True) -> Attempt:
        """Judges a kernel, again if the harness failed. Cancelling the call cancels the run.

        problem: its stem. player: the player of its results. timed: False compiles and calls it only.

        Raises:
            ArenaError: no jail, a setting that cannot be run, or the harness failed twice.
        """
        arena = await self._opened()
        require_jail(arena.jail, terms.unsafe)
        options = terms.options | ({} if timed else {"rounds": 0})
        for _ in range(TRIES):
            judgement = await arena.judgement(problem, kernel, player=player, **options)
            if judgement.report.verdict is not Verdict.HARNESS_ERROR:
                return Attempt(1, ModelAnswer(fenced_kernel(kernel), Finish("stop"), Spent()), judgement)
        raise MachineError(judgement.report.detail, "see `pkb-arena doctor`")

    async def _opened(self) -> Arena:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the worlds of an earlier loop have ended with its pipes
            self._loop, self._arena, self._opening = loop, None, asyncio.Lock()
        async with self._opening:
            if self._arena is None:
                arena = self._make()
                await arena.__aenter__()
                self._arena = arena
        return self._arena

    async def close(self) -> None:
        """Ends all worlds. The next kernel starts others."""
        arena, self._arena = self._arena, None
        if arena is not None and self._loop is asyncio.get_running_loop():
            await arena.__aexit__(None, None, None)


JUDGE = SharedJudge()


def numbers(attempt: Attempt | None) -> dict[str, float]:
    """Returns a verdict as NUMBERS, as the board counts it: 0 where it has no value. All are 0 without a judged kernel."""
    report = attempt.report if attempt is not None else None
    if attempt is None or report is None:
        return dict.fromkeys(NUMBERS, 0.0)
    told = attempt.passed and report.outcome != NOISY
    speedup, percent = (attempt.speedup, report.percent) if told else (None, None)
    fast = {f"fast_{p:g}".replace(".", "_"): float(is_fast(speedup, attempt.passed, p)) for p in (1, 1.5, 2)}
    return {
        "correct": float(attempt.passed),
        "faster": float(attempt.faster),
        "speedup": speedup or 0.0,
        **fast,
        "share_of_bound": (percent or 0.0) / 100,
        "reward": reward(report),
    }


def words(attempt: Attempt, *, timed: bool = True) -> str:
    """Returns what a model reads about a verdict."""
    judgement: Judgement | None = attempt.judgement
    assert judgement is not None
    return (judgement_words if timed else build_words)(judgement, attempt.kernel.source)


def report_of(attempt: Attempt) -> Mapping[str, Any]:
    """Returns the report of a run as plain data: the JSON of `run --json`."""
    assert attempt.report is not None
    return json_of(attempt.report)
