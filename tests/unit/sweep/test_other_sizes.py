"""Other legal settings of a problem, and a kernel that holds in one of them only."""

import random
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec
import pytest
from playing_agent import RIGHT
from scripted_referee import COMMAND as REFEREE

from arena.paths import Paths
from arena.players.feedback import judgement_words
from arena.players.judge_access import JudgeAccess
from arena.players.player import Task
from arena.records.index import Store
from arena.records.run_record import OtherSize, holds
from arena.runs import other_sizes
from arena.runs.engine import Engine
from arena.runs.judge import RunRequest, judge_to_end
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from problems.specification import Problem
from sandbox.protocol.events import Contender
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict

CATALOGUE = load_catalogue()
ON_CPU = Choice(device="cpu", preset="tiny")


@pytest.mark.parametrize("problem", CATALOGUE.problems[::6], ids=str)
def test_other_sizes_differ_and_cost_little_more(problem: Problem) -> None:
    setting = choose_setting(problem, ON_CPU, Settings())
    drawn = list(islice(other_sizes.other_settings(problem, setting, random.Random(1)), 20))
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
        assert other.world <= max(other_sizes.CPU_RANKS, setting.world)
        assert work(other) <= other_sizes.MOST_WORK * max(work(setting), 1.0)


def test_nobody_can_foresee_them_and_seed_repeats_them() -> None:
    assert {other_sizes._size(4, random.Random(seed)) for seed in range(400)} == {*range(2, 9)}
    problem = CATALOGUE.find("13")
    setting = choose_setting(problem, ON_CPU, Settings())
    first, same, other = (
        list(islice(other_sizes.other_settings(problem, setting, random.Random(n)), 5)) for n in (1, 1, 2)
    )
    assert first == same != other


@pytest.mark.parametrize(
    ("source", "verdicts"), [("pass", ["PASS"] * 3), ("wrong", ["WRONG_RESULT"] * 3), ("refuse", [])]
)
async def test_refused_settings_are_drawn_again_and_say_nothing(
    paths: Paths, source: str, verdicts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = CATALOGUE.find("1")
    setting = choose_setting(problem, ON_CPU, Settings())
    request = RunRequest(problem=problem, setting=setting, kernel_name="k.py", source=source)
    async with Engine(paths, command=REFEREE) as engine:
        found = await other_sizes.judge_other_sizes(engine, request)
        monkeypatch.setattr(other_sizes, "LONGEST_S", -1.0)
        assert await other_sizes.judge_other_sizes(engine, request) == []
    assert [other.verdict for other in found] == verdicts


async def test_faster_kernel_is_timed_briefly_in_two(paths: Paths) -> None:
    problem = CATALOGUE.find("1")
    setting = choose_setting(problem, ON_CPU, Settings())
    request = RunRequest(problem=problem, setting=setting, kernel_name="k.py", source="pass", budget_s=8.0, energy=True)
    told: list[other_sizes.OtherSizesProgress] = []
    asked: list[RunRequest] = []
    async with Engine(paths, command=REFEREE) as engine:
        report = (await judge_to_end(engine, request)).report
        judge = engine.judge
        engine.judge = lambda request: asked.append(request) or judge(request)
        judged = await other_sizes.with_other_sizes(engine, request, report, told.append)
        untimed = await other_sizes.with_other_sizes(engine, request, msgspec.structs.replace(report, outcome="even"))
        against = await other_sizes.with_other_sizes(
            engine, msgspec.structs.replace(request, versus=Contender("r.py", "pass")), report
        )
    assert [(each.energy, each.versus) for each in asked] == [(False, None)] * 9
    assert [other.outcome for other in against.other_sizes] == ["", "", ""]
    assert [other.outcome for other in judged.other_sizes] == ["faster", "faster", ""]
    assert judged.holds_at_other_sizes == "all"
    assert [progress.most_s for progress in told] == [2.0, 2.0, None]
    assert told[1].words.startswith("other setting 2 of 3: M=")
    assert told[1].words.endswith(", timed for up to 2 s")
    assert [other.outcome for other in untimed.other_sizes] == ["", "", ""]
    assert untimed.holds_at_other_sizes == ""


@pytest.mark.parametrize(
    ("results", "told"),
    [
        (["PASS faster", "PASS faster", "PASS"], "all"),
        (["PASS faster", "PASS too noisy", "PASS"], "all"),
        (["PASS faster", "PASS even", "PASS"], "some"),
        (["PASS faster", "PASS faster", "WRONG_RESULT"], "some"),
        (["PASS slower", "PASS even", "PASS"], "none"),
        (["PASS too noisy", "PASS too noisy", "PASS"], ""),
        ([], ""),
    ],
)
def test_kernel_holds_where_it_is_right_and_faster(results: list[str], told: str) -> None:
    others = []
    for verdict, _, outcome in (result.partition(" ") for result in results):
        others.append(
            OtherSize(sizes={}, dtype="float32", world=2, verdict=Verdict(verdict), run_id="", outcome=outcome)
        )
    assert holds(others) == told


async def test_rebuilt_index_knows_where_kernel_holds(paths: Paths) -> None:
    problem = CATALOGUE.find("1")
    setting = choose_setting(problem, ON_CPU, Settings())
    request = RunRequest(problem=problem, setting=setting, kernel_name="k.py", source="pass")
    async with Engine(paths, command=REFEREE) as engine:
        report = (await judge_to_end(engine, request)).report
        judged = await other_sizes.with_other_sizes(engine, request, report)
        await judge_to_end(engine, request)
    assert judged.holds_at_other_sizes == "all"
    for _ in range(2):
        store = Store(paths.database, paths.runs)
        standing = store.standings()[1]
        assert (standing.holds, standing.runs) == ("all", 5)
        store.close()
        paths.database.unlink()


async def test_players_read_verdicts_at_other_sizes(paths: Paths) -> None:
    problem = CATALOGUE.find("1")
    setting = choose_setting(problem, ON_CPU, Settings())
    told: list[str] = []
    async with Engine(paths, command=REFEREE) as engine:
        access = JudgeAccess(
            *(engine, Task(problem, setting), "agent:m"),
            unsafe=True,
            other_sizes=True,
            hear_other_size=lambda progress: told.append(progress.words),
        )
        right, wrong = await access.judge(Kernel("pass"), "k.py"), await access.judge(Kernel("wrong"), "k.py")
        built = await access.build(Kernel("pass"), "k.py")
    assert right.report.holds_at_other_sizes == "all"
    assert len(told) == other_sizes.SETTINGS
    assert not wrong.report.tried_other_sizes
    assert not built.report.tried_other_sizes
    words = judgement_words(right, "pass")
    assert words.count("- other size: `✓ M=") == other_sizes.SETTINGS
    assert "- faster at other sizes: `all`" in words
    one = replace(
        right, others=(msgspec.structs.replace(right.others[0], verdict=Verdict.WRONG_RESULT, detail="`no`"),)
    )
    assert "WRONG_RESULT: 'no'`" in (words := judgement_words(one, "pass"))
    assert "The kernel must be right at every legal size." in words


@pytest.mark.slow
async def test_kernel_made_for_one_shape_is_found_out(paths: Paths, shared_referee: Any) -> None:
    """On real ranks, it is right for the preset's shape, and doubles the results for other shapes."""
    problem = CATALOGUE.find("1")
    setting = choose_setting(problem, ON_CPU, Settings())
    shape = setting.sizes["M"], setting.sizes["N"]
    source = RIGHT.replace("return total", f"return total if tuple(tensor.shape) == {shape} else total * 2")
    request = RunRequest(problem=problem, setting=setting, kernel_name="k.py", source=source, rounds=0)
    async with Engine(paths, command=shared_referee.command) as engine:
        assert (await judge_to_end(engine, request)).report.verdict == "PASS"
        found = await other_sizes.judge_other_sizes(engine, request, random.Random(3))
    assert len(found) == other_sizes.SETTINGS
    assert any(other.verdict == "WRONG_RESULT" for other in found)
