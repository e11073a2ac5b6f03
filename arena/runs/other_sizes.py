"""Checks a kernel that passed at other sizes: correctness only, in three random legal settings.

A setting is legal when the problem's own checks and the baseline take it; what they refuse is drawn again.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec

from arena.errors import RunRefused
from arena.runs.judge import Judge, judge_to_end
from arena.runs.results import OtherSize
from arena.runs.run_request import RunRequest
from problems.formula import FormulaError
from problems.specification import Cost, Problem
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import AnyEvent, Setting
from sandbox.protocol.verdict import Verdict

SETTINGS = 3
DRAWS = 12
"""Settings that are tried before fewer than `SETTINGS` are enough."""
SMALL = 8
"""Sizes below this count something, such as heads of attention: they are mostly left alone."""
FACTORS = (0.5, 0.75, 1.25, 1.5, 2.0)
MOST_WORK = 4.0
"""Times the work of the setting that was asked for."""
CPU_RANKS = 4
"""CPU ranks share cores: larger worlds tell nothing more and take long."""


def other_settings(problem: Problem, setting: Setting, chance: random.Random) -> Iterator[Setting]:
    """Settings near this one, without repetition: other sizes, as a rule another dtype, now and then another world."""
    seen = {_key(setting)}
    worlds = _worlds(problem, setting)
    for _ in range(100 * DRAWS):
        other = msgspec.structs.replace(
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
        return chance.randint(value // 2, 2 * value)  # nobody's multiple
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
    return _work(there) <= MOST_WORK * max(_work(here), 1.0)


def _work(cost: Cost) -> float:
    return cost.flops + cost.local_bytes + cost.sent_bytes + cost.received_bytes


def _ignore(_: AnyEvent) -> None: ...


async def judge_other_sizes(
    judge: Judge,
    request: RunRequest,
    chance: random.Random | None = None,
    listener: Callable[[AnyEvent], None] = _ignore,
) -> list[OtherSize]:
    """Judges the kernel of `request` in `SETTINGS` other settings, fewer where not so many are found to be legal.

    chance: a generator that the kernel cannot foresee; the system's when None.

    Raises:
        MachineError: the runs could not be made, or were cancelled.
    """
    found: list[OtherSize] = []
    settings = other_settings(request.problem, request.setting, chance or random.SystemRandom())
    for _, setting in zip(range(DRAWS), settings, strict=False):
        try:
            other = replace(request, setting=setting, rounds=0)
            judgement = await judge_to_end(judge, other, listener)
        except RunRefused:
            continue
        report = judgement.report
        if report.verdict is Verdict.HARNESS_ERROR:  # what the baseline itself cannot do
            continue
        found.append(
            OtherSize(
                sizes=setting.sizes,
                dtype=setting.dtype,
                world=setting.world,
                verdict=report.verdict,
                detail=report.detail,
                run_id=report.run_id,
            )
        )
        if len(found) == SETTINGS:
            break
    return found
