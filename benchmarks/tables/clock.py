"""A table of a plain loop's times for the baseline, as a user's script measures them, beside the arena's.

The two take turns: plain loop, arena, plain loop, arena, ..., plain loop. Each of the arena's figures is compared with
the plain turns right before and after it, so that drift affects both. Processes that have no turn are stopped or idle.
"""

import asyncio
import math
import os
import time
from collections.abc import Mapping, Sequence
from statistics import median, quantiles

import msgspec

from arena.errors import ArenaError, MachineError, UsageError
from arena.runs.engine import temporary_engine
from arena.runs.judge import Judge, RunRequest, judge_to_end
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.words.table import Column, TextTable
from arena.workspace.named_kernels import BASELINE
from benchmarks.plain_ranks import PlainRanks
from benchmarks.plain_turns import CALLS, PlainTimes, PlainTurns
from benchmarks.rows import REFUSED, PlannedRun, RunRow, SettingRow, bare_row, finished_row, require_harness
from benchmarks.tables.scope import Conclusion, Scope, Tell
from problems.specification import Problem
from sandbox.machine.processes import cpu_seconds, tree
from sandbox.protocol.events import Result, Setting
from sandbox.protocol.verdict import Verdict

LIMIT_S = 30.0
CHECK_S = 0.5
CALM = 0.2
"""Cores that all processes below this one may use together."""
CHECKS = 2
"""Calm checks in a row that are needed."""


async def until_calm() -> bool:
    """Waits until all processes below this one use next to no CPU time. False if they still do after LIMIT_S."""
    ends = time.monotonic() + LIMIT_S
    calm = 0
    before, since = _used(), time.monotonic()
    while calm < CHECKS:
        if time.monotonic() > ends:
            return False
        await asyncio.sleep(CHECK_S)
        used, now = _used(), time.monotonic()
        calm = calm + 1 if used - before <= CALM * (now - since) else 0
        before, since = used, now
    return True


def _used() -> float:
    own = os.getpid()
    return cpu_seconds(pid for pid in tree(own) if pid != own)


RUNS = 3
"""Runs of the arena for each problem; there is one more turn of the plain loop."""
RUN_S, PROBLEM_S = 180.0, 600.0
"""Limits in seconds of a run, and of a problem."""
WITHIN = {"call": 0.10, "device": 0.05}
"""Largest relative difference of the arena's figure from the plain loop's."""
CLOCKS = tuple(WITHIN)
FAILED = "FAILED"
"""Shown in place of a verdict: the plain loop failed, or something took too long."""

# By category: collective, tensor, sequence, context, pipeline, data, expert, fsdp, vocab, graph, spatial, other.
PROBLEMS = (
    *(1, 8),
    *(9, 13, 46),
    *(17, 45),
    *(39, 54),
    56,
    *(40, 58),
    *(27, 31, 49),
    *(21, 43),
    *(73, 82),
    *(64, 69),
    *(59, 87),
    85,
)
"""Some of every category: from one small collective to training steps, calls that wait for the GPU, and rings of sends."""


class Spread(msgspec.Struct, frozen=True):
    """A median with a lower and an upper value."""

    median: float
    low: float
    high: float


class ByClock(msgspec.Struct, frozen=True):
    """A spread by clock; None if there is none."""

    call: Spread | None = None
    device: Spread | None = None


class ClockRow(SettingRow, frozen=True, kw_only=True):
    """One problem. `*_us`: microseconds per call, low and high are the quartiles over repetitions or pairs."""

    inputs: int = 0
    """Sets of inputs that the plain loop uses in turn."""
    calls: int = CALLS
    """Calls of a batch of the plain loop."""
    queued_calls: int = 0
    """The same behind an occupied stream."""
    plain_us: ByClock = ByClock()
    arena_us: ByClock = ByClock()
    ratio: ByClock = ByClock()
    """Arena over plain loop: the median over the arena's runs, the smallest and the largest one."""
    within: Mapping[str, bool] = {}
    """By clock that both have: whether the ratio is close enough to 1."""
    calm: bool = True
    """Whether nothing else of the arena was busy in the plain loop's turns."""
    plain: Sequence[PlainTimes] = ()
    """The times of every turn."""
    runs: Sequence[RunRow] = ()
    """The arena's runs: intervals, pairs, calls, overhead."""


async def measure(scope: Scope, tell: Tell, rows: list[ClockRow]) -> None:
    """Measures about 25 problems, half a minute to a minute each.

    Raises:
        MachineError: there are not enough GPUs, or nothing can be judged here, or three problems in a row failed.
    """
    choice = Choice(preset=scope.preset, world=scope.world, device=scope.device)
    loops = _Loops()
    try:
        async with temporary_engine() as engine:
            for problem in scope.problems_or(PROBLEMS):
                rows.append(await _row(engine, loops, problem, choice, scope.repetitions or RUNS))
                if len(rows) == 1:
                    tell(TABLE.header)
                tell(TABLE.line(rows[-1]))
                require_harness(rows, FAILED)
    finally:
        await loops.close()


class _Loops:
    """The plain loop's ranks. They are restarted for another world size or device, and after a failure."""

    def __init__(self) -> None:
        self._ranks: PlainRanks | None = None

    async def open(self, setting: Setting) -> tuple[PlainRanks, int]:
        """Opens a problem; returns the stopped ranks, and the number of sets of inputs."""
        ranks = self._ranks
        if ranks is not None and (ranks.world, ranks.device) != (setting.world, setting.device):
            await self.close()
        if self._ranks is None:
            self._ranks = PlainRanks(setting.world, setting.device)
            await self._ranks.start()
        async with self._ranks.awake():
            return self._ranks, await self._ranks.open(setting)

    async def close(self) -> None:
        """Kills the ranks."""
        if self._ranks is not None:
            await self._ranks.close()
            self._ranks = None


async def _row(judge: Judge, loops: _Loops, problem: Problem, choice: Choice, runs: int) -> ClockRow:
    """Measures one problem. A failure of this problem alone is noted in its row.

    Raises:
        MachineError: there are not enough GPUs.
    """
    started = time.monotonic()
    try:
        setting = choose_setting(problem, choice, Settings())
    except UsageError as error:
        return bare_row(ClockRow, problem, choice, REFUSED, error.message, started)
    try:
        async with asyncio.timeout(PROBLEM_S):
            return await _in_turns(judge, loops, problem, setting, runs)
    except (ArenaError, TimeoutError) as error:
        await loops.close()
        detail = error.message if isinstance(error, ArenaError) else "it took too long"
        return bare_row(ClockRow, problem, setting, FAILED, detail, started)
    except BaseException:
        await loops.close()
        raise


async def _in_turns(judge: Judge, loops: _Loops, problem: Problem, setting: Setting, runs: int) -> ClockRow:
    started = time.monotonic()
    planned = PlannedRun(problem, BASELINE, Choice())
    asked = RunRequest(problem=problem, setting=setting, kernel_name=BASELINE, source="")
    calm = await until_calm()
    ranks, inputs = await loops.open(setting)
    turns = PlainTurns(ranks)
    plain = [await turns.turn()]
    results: list[Result] = []
    rows: list[RunRow] = []
    for _ in range(runs):
        begun = time.monotonic()
        async with asyncio.timeout(RUN_S):
            judgement = await judge_to_end(judge, asked)
        rows.append(finished_row(planned, judgement, begun))
        results.append(judgement.result)
        if judgement.result.verdict is not Verdict.PASS:
            raise MachineError(f"the baseline got {judgement.result.verdict}: {judgement.result.detail}")
        calm &= await until_calm()  # the next worlds start now
        plain.append(await turns.turn())
    ratio = ByClock(*(ratios(plain, results, clock) for clock in CLOCKS))
    return bare_row(
        *(ClockRow, problem, setting, Verdict.PASS, "", started),
        inputs=inputs,
        queued_calls=turns.queued_calls,
        plain_us=ByClock(*(quartiles([us for turn in plain for us in getattr(turn, c)]) for c in CLOCKS)),
        arena_us=ByClock(*(quartiles(batches(results, clock)) for clock in CLOCKS)),
        ratio=ratio,
        within=within(ratio),
        calm=calm,
        plain=plain,
        runs=rows,
    )


# --- evaluation of the turns ---------------------------------------------------------------------------------


def quartiles(values: Sequence[float]) -> Spread | None:
    """Median and quartiles; None without values."""
    if len(values) < 2:
        return Spread(values[0], values[0], values[0]) if values else None
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def batches(results: Sequence[Result], clock: str) -> list[float]:
    """The baseline's times in every pair of the arena's runs, microseconds per call."""
    return [pair.baseline_us for result in results for pair in getattr(result.samples, clock)]


def ratios(plain: Sequence[PlainTimes], results: Sequence[Result], clock: str) -> Spread | None:
    """The arena's figures over the plain loop's: result n over the geometric mean of the turns n and n + 1."""
    found = []
    for number, result in enumerate(results):
        figure = getattr(result.baseline_us, clock) if result.baseline_us else None
        beside = [getattr(turn, clock) for turn in plain[number : number + 2]]
        if figure and all(beside):
            found.append(figure / math.sqrt(math.prod(map(median, beside))))
    return Spread(median(found), min(found), max(found)) if found else None


def within(ratio: ByClock) -> dict[str, bool]:
    """By clock that is available: whether the arena's figure is close enough to the plain loop's."""
    found = {clock: getattr(ratio, clock) for clock in CLOCKS}
    return {clock: abs(each.median - 1) <= WITHIN[clock] for clock, each in found.items() if each}


def conclude(rows: Sequence[ClockRow]) -> Conclusion:
    """How many of the problems are within the limits, by clock. Sound: every problem was measured or is refused."""
    lines = []
    for clock, limit in WITHIN.items():
        told = [row for row in rows if clock in row.within]
        near = [row for row in told if row.within[clock]]
        far = ", ".join(str(row.id) for row in told if not row.within[clock])
        if told:
            tail = f"; not {far}" if far else ""
            lines.append(f"{clock} within {100 * limit:.0f} % of the plain loop: {len(near)} of {len(told)}{tail}")
    lost = ", ".join(f"{row.id} ({row.detail})" for row in rows if row.verdict not in (Verdict.PASS, REFUSED))
    if lost:
        lines.append(f"not measured: {lost}")
    return Conclusion(lines, not lost)


# --- as text -------------------------------------------------------------------------------------------------


def _spread(spread: Spread | None) -> str:
    return "–" if spread is None else f"{spread.median:.1f} [{spread.low:.1f}, {spread.high:.1f}]"


def _ratio(row: ClockRow, clock: str) -> str:
    ratio = getattr(row.ratio, clock)
    if ratio is None:
        return "–"
    return f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] {'ok' if row.within[clock] else 'NO'}"


TABLE = TextTable[ClockRow](
    (
        Column("problem", lambda row: f"{row.id:02d} {row.problem}"[:28], 28),
        Column("size", lambda row: row.preset, 10, right=True),
        Column("W", lambda row: str(row.world), 2, right=True),
        Column("plain call", lambda row: _spread(row.plain_us.call), 24),
        Column("arena call", lambda row: _spread(row.arena_us.call), 24),
        Column("arena / plain", lambda row: _ratio(row, "call"), 23),
        Column("plain device", lambda row: _spread(row.plain_us.device), 24),
        Column("arena device", lambda row: _spread(row.arena_us.device), 24),
        Column("arena / plain", lambda row: _ratio(row, "device"), 23),
        Column("s", lambda row: f"{row.seconds:.0f}", 4, right=True),
        Column("", lambda row: row.detail[:110] if row.verdict != Verdict.PASS else "not calm" * (not row.calm)),
    )
)
"""Microseconds per call with quartiles; ratios with the smallest and the largest of the arena's runs."""
