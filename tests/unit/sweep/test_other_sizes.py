"""Other legal settings of a problem, and a kernel that holds in one of them only."""

import random
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from arena.paths import Paths
from arena.runs.engine import Engine
from arena.runs.judge import judge_to_end
from arena.runs.other_sizes import CPU_RANKS, MOST_WORK, SETTINGS, judge_other_sizes, other_settings
from arena.runs.run_request import RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from problems.specification import Problem

REFEREE = (sys.executable, str(Path(__file__).parent.parent / "scripted_referee.py"))
CATALOGUE = load_catalogue()
ON_CPU = Choice(device="cpu", preset="tiny")


@pytest.mark.parametrize("problem", CATALOGUE.problems[::6], ids=str)
def test_they_differ_from_the_first_and_each_other_and_cost_little_more(problem: Problem) -> None:
    setting = choose_setting(problem, ON_CPU, Settings())
    drawn = list(islice(other_settings(problem, setting, random.Random(1)), 20))
    assert len(drawn) == 20
    assert setting not in drawn
    assert len({repr(other) for other in drawn}) == 20

    def work(other: object) -> float:
        cost = problem.cost(other.sizes, other.world, other.dtype)  # type: ignore[attr-defined]
        return cost.flops + cost.local_bytes + cost.sent_bytes + cost.received_bytes

    for other in drawn:
        assert other.sizes.keys() == setting.sizes.keys()
        assert all(value >= 1 for value in other.sizes.values())
        assert other.dtype in problem.dtypes
        assert other.world in problem.worlds
        assert other.world <= max(CPU_RANKS, setting.world)
        assert work(other) <= MOST_WORK * max(work(setting), 1.0)


def test_nobody_can_foresee_them_and_a_seed_repeats_them() -> None:
    problem = CATALOGUE.find("13")
    setting = choose_setting(problem, ON_CPU, Settings())
    first, same, other = (list(islice(other_settings(problem, setting, random.Random(n)), 5)) for n in (1, 1, 2))
    assert first == same != other


@pytest.mark.parametrize(
    ("source", "verdicts"), [("pass", ["PASS"] * 3), ("wrong", ["WRONG_RESULT"] * 3), ("refuse", [])]
)
async def test_refused_settings_are_drawn_again_and_say_nothing(paths: Paths, source: str, verdicts: list[str]) -> None:
    problem = CATALOGUE.find("1")
    setting = choose_setting(problem, ON_CPU, Settings())
    request = RunRequest(problem=problem, setting=setting, kernel_name="k.py", source=source)
    async with Engine(paths, command=REFEREE) as engine:
        found = await judge_other_sizes(engine, request)
    assert [other.verdict for other in found] == verdicts
    assert len(found) <= SETTINGS


@pytest.mark.slow
async def test_a_kernel_made_for_one_shape_is_found_out(paths: Paths, shared_referee: Any) -> None:
    """Real ranks: it is right for the rows of the preset, and doubles everything else."""
    problem = CATALOGUE.find("1")
    setting = choose_setting(problem, ON_CPU, Settings())
    source = (
        "import torch.distributed as dist\n\n\ndef solution(tensor):\n    out = tensor.clone()\n    dist.all_reduce(out)\n"
        f"    return out if tuple(tensor.shape) == ({setting.sizes['M']}, {setting.sizes['N']}) else out * 2\n"
    )
    request = RunRequest(problem=problem, setting=setting, kernel_name="k.py", source=source, rounds=0)
    async with Engine(paths, command=shared_referee.command) as engine:
        assert (await judge_to_end(engine, request)).report.verdict == "PASS"
        found = await judge_other_sizes(engine, request, random.Random(3))
    assert len(found) == SETTINGS
    assert any(other.verdict == "WRONG_RESULT" for other in found)
