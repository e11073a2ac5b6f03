"""House kernels are right in every allowed world and at odd sizes, and pass the judge."""

import asyncio
import itertools
import random
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from house_agreement import off, real_leaves, same, sizes_of, wanted_leaves
from torch.utils._pytree import tree_map
from waiting import PATIENCE_S

from arena.paths import paths_in
from arena.runs.engine import Engine
from arena.runs.judge import Judgement, RunRequest, judge_to_end
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from problems.specification import Problem
from sandbox.kit.blocks import sums
from sandbox.kit.symmetric_memory.team import Team
from sandbox.protocol.verdict import Verdict
from sandbox.rank.problem_code import ProblemCode

HOUSE = [problem for problem in load_catalogue().problems if problem.house_source]
JUDGED = [pytest.param(each, marks=getattr(pytest.mark, "further" if each.id == 13 else "long")) for each in HOUSE]
CALLS = 6
"""Enough calls that rings of buffers start again, roots change, and every layout occurs."""


def worlds_of(problem: Problem) -> Iterator[Any]:
    """Yields (problem, world): 3 where it is allowed, for `make check-problems`; the others are marked long."""
    checked = [world for world in (3, 2, 1) if world in problem.worlds][:1]
    for world in (1, 2, 3, 5, 8):
        if world in problem.worlds:
            mark = pytest.mark.problems if world in checked else pytest.mark.long
            yield pytest.param(problem, world, marks=mark, id=f"{problem.slug}-{world}")


def test_every_problem_has_a_house_kernel():
    assert [problem.id for problem in HOUSE] == [problem.id for problem in load_catalogue().problems]


def first_of_categories() -> Iterator[Any]:
    """Yields all problems; after the first one of its category, a problem is marked long: three ranks show what two do."""
    shown: set[str] = set()
    for problem in HOUSE:
        marks = [pytest.mark.long] if problem.category in shown else []
        shown.add(problem.category)
        yield pytest.param(problem, marks=marks, id=problem.slug)


@pytest.mark.parametrize("problem", first_of_categories())
def test_it_agrees_in_its_first_dtype(in_ranks, problem):
    world = 2 if 2 in problem.worlds else min(problem.worlds)
    agrees(in_ranks, problem, world, [(sizes_of(problem)[0], problem.dtypes[0])])


@pytest.mark.parametrize(("problem", "world"), [case for problem in HOUSE for case in worlds_of(problem)])
def test_it_agrees_at_all_legal_settings(in_ranks, problem, world):
    agrees(in_ranks, problem, world, list(itertools.product(sizes_of(problem), problem.dtypes)))


def come_late_after_barriers(chance: random.Random) -> None:
    """Delays this rank after some barriers, so that a result is wrong where a barrier is missing."""
    on_time = Team.barrier

    def late(team: Team, *arguments: Any) -> None:
        on_time(team, *arguments)
        time.sleep(chance.choice((0.0, 0.0, 0.004)))

    Team.barrier = late  # type: ignore[method-assign]


def kept(leaf: Any) -> Any:
    """A copy of a tensor; `deepcopy` would copy the whole heap that it lies in."""
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def agrees(in_ranks: Any, problem: Problem, world: int, settings: Sequence[tuple[dict[str, int], str]]) -> None:
    """Asserts that a house kernel agrees with the oracle at settings (sizes, dtype), and changes no input."""

    def work(rank: int, world: int) -> list[tuple[float, bool]]:
        come_late_after_barriers(random.Random(rank))
        module = types.ModuleType("kernel")
        exec(problem.house_source, module.__dict__)
        code = ProblemCode(problem)
        found = []
        for sizes, dtype in settings:
            setting = code.setting(problem.sizes("tiny", sizes), "tiny", dtype, torch.device("cpu"))
            for seed in range(CALLS):
                sums.ONE_SHOT = (1 << 15, 4)[seed % 2]  # small tensors are added in shares in every other call
                tensors = code.draw(setting, seed)
                before = {name: tensor.clone() for name, tensor in tensors.items()}
                facts = code.facts(tensors, setting)
                result = tree_map(kept, code.call(module.solution, tensors, setting))  # before other ranks arrive late
                got = real_leaves(code.canonical(result, setting, facts))
                wanted = wanted_leaves(code, tensors, setting, facts)
                untouched = all(same(before[name], tensor) for name, tensor in tensors.items())
                found += [(off(problem, dtype, g, w), untouched) for (_, g), (_, w) in zip(got, wanted, strict=True)]
        return found

    for figures in in_ranks(world, work, timeout=PATIENCE_S):
        assert all(untouched for _, untouched in figures)
        # NaN is neither above nor within a limit, so the assertion uses `<=`.
        assert all(error <= 1.0 for error, _ in figures), max(figures)


@pytest.fixture(scope="module")
def judge(
    tmp_path_factory: pytest.TempPathFactory, shared_referee: Any
) -> Iterator[Callable[[Problem, int], Judgement]]:
    """judge(problem, rounds): judges its house kernel on two CPU ranks. Its worlds open problem after problem."""
    folder = tmp_path_factory.mktemp("arena")
    engine = Engine(paths_in(folder), command=shared_referee.command)

    async def judged(problem: Problem, rounds: int) -> Judgement:
        setting = choose_setting(problem, Choice(world=2, device="cpu"), Settings())
        source = problem.house_source
        request = RunRequest(problem=problem, setting=setting, kernel_name="house.py", source=source, rounds=rounds)
        return await judge_to_end(engine, request)

    with asyncio.Runner() as runner:
        yield lambda problem, rounds: runner.run(judged(problem, rounds))
        runner.run(engine.close())


@pytest.mark.parametrize("problem", JUDGED, ids=lambda problem: problem.slug)
def test_the_judge_times_it(judge, problem):
    result = judge(problem, 3).result
    assert result.verdict is Verdict.PASS, result.detail
