"""After a PASS, judges the kernel in three other random settings. A faster kernel is also timed in two of them.

A setting is legal if the problem's own checks and the baseline accept it. A refused setting is replaced by another one.
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from arena.errors import RunRefused
from arena.records.report_text import setting_words
from arena.records.run_record import OtherSize, RunRecord, view
from arena.runs.judge import Judge, RunRequest, judge_to_end
from problems.formula import FormulaError
from problems.specification import Cost, Problem
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Setting
from sandbox.protocol.verdict import Verdict

SETTINGS = 3
TIMED = 2
"""Settings in which a faster kernel is timed."""
SHORT_S = 2.0
"""Time budget of a timed setting, in seconds."""
LONGEST_S = 120.0
"""No further setting is begun after this many seconds."""
DRAWS = 12
"""Most settings that are tried, also if fewer than `SETTINGS` of them are legal."""
SMALL = 8
"""Sizes below this count something, such as attention heads: they mostly stay as they are."""
FACTORS = (0.5, 0.75, 1.25, 1.5, 2.0)
MOST_WORK = 4.0
"""Most work of another setting, as a multiple of the work in the requested setting."""
CPU_RANKS = 4
"""Largest other world on CPU ranks. They share cores, so larger worlds show nothing more and take long."""


def other_settings(problem: Problem, setting: Setting, chance: random.Random) -> Iterator[Setting]:
    """Yields random settings near this one, each once: other sizes, often another dtype, sometimes another world."""
    seen = {_key(setting)}
    worlds = _worlds(problem, setting)
    for _ in range(100 * DRAWS):
        other = replace(
            setting,
            sizes={name: _size(value, chance) for name, value in setting.sizes.items()},
            dtype=chance.choice(problem.dtypes),
            world=chance.choice(worlds) if chance.random() < 0.5 else setting.world,
        )
        if _key(other) not in seen and _affordable(problem, setting, other):
            seen.add(_key(other))
            yield other


def _size(value: int, chance: random.Random) -> int:
    if value < SMALL:
        return value if chance.random() < 0.75 else chance.randint(max(1, value // 2), 2 * value)
    if chance.random() < 0.25:
        return value
    if chance.random() < 0.25:
        return chance.randint(value // 2, 2 * value)  # any number, also one that no tile size divides
    return max(1, round(value * chance.choice(FACTORS)))


def _worlds(problem: Problem, setting: Setting) -> list[int]:
    most = setting.world if kind_of(setting.device).on_gpus else max(CPU_RANKS, setting.world)
    return [world for world in problem.worlds if 1 < world <= most] or [setting.world]


def _key(setting: Setting) -> tuple[object, ...]:
    return (tuple(setting.sizes.items()), setting.dtype, setting.world)


def _affordable(problem: Problem, setting: Setting, other: Setting) -> bool:
    try:
        here, there = (problem.cost(each.sizes, each.world, each.dtype) for each in (setting, other))
    except FormulaError:
        return False
    return _work(there) <= MOST_WORK * _work(here)


def _work(cost: Cost) -> float:
    return cost.flops + cost.local_bytes + cost.sent_bytes + cost.received_bytes


@dataclass(frozen=True)
class OtherSizesProgress:
    """Passed to the listener before each run in another setting."""

    setting: Setting
    most_s: float | None
    """Seconds that timing may take; None: correctness only."""
    found: tuple[OtherSize, ...] = ()
    """Results so far."""

    @property
    def words(self) -> str:
        """ "other setting 2 of 3: M=512 N=96 float32 world 2, timed for up to 2 s"."""
        what = "correctness only" if self.most_s is None else f"timed for up to {self.most_s:g} s"
        return f"other setting {len(self.found) + 1} of {SETTINGS}: {setting_words(self.setting)}, {what}"


def ignore(_: OtherSizesProgress) -> None:
    """A listener that does nothing."""


async def with_other_sizes(
    judge: Judge, request: RunRequest, report: RunRecord, listener: Callable[[OtherSizesProgress], None] = ignore
) -> RunRecord:
    """After a PASS, judges the kernel in other settings. Returns its report with the results.

    The kernel is timed there if it is faster than the baseline here. The rival of `request` takes no part.

    Raises:
        MachineError: the runs could not be made, or were cancelled.
    """
    timed = report.outcome == "faster" and request.versus is None
    request = replace(request, versus=None, other_than=report.run_id)
    found = await judge_other_sizes(judge, request, timed=timed, listener=listener)
    return report.with_others(found)


async def judge_other_sizes(
    judge: Judge,
    request: RunRequest,
    chance: random.Random | None = None,
    *,
    timed: bool = False,
    listener: Callable[[OtherSizesProgress], None] = ignore,
) -> list[OtherSize]:
    """Judges the kernel of `request` in `SETTINGS` other settings, or in fewer if too few legal ones are found.

    chance: a random generator that the kernel cannot predict; when None, the system's.
    timed: whether the kernel is timed in `TIMED` of them, with a short budget.

    Raises:
        MachineError: the runs could not be made, or were cancelled.
    """
    found: list[OtherSize] = []
    ends = time.monotonic() + LONGEST_S
    settings = other_settings(request.problem, request.setting, chance or random.SystemRandom())
    for _, setting in zip(range(DRAWS), settings, strict=False):
        if time.monotonic() > ends:
            break
        other = replace(request, setting=setting, rounds=0, energy=False)
        if timed and sum(bool(each.outcome) for each in found) < TIMED:
            other = replace(other, rounds=None, budget_s=min(request.budget_s, SHORT_S))
        listener(OtherSizesProgress(setting, other.most_s, tuple(found)))
        try:
            report = (await judge_to_end(judge, other)).report
        except RunRefused:
            continue
        if report.verdict is Verdict.HARNESS_ERROR:  # the baseline itself fails in this setting
            continue
        found.append(view(OtherSize, report))
        if len(found) == SETTINGS:
            break
    return found
