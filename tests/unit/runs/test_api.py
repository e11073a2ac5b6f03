"""The Python interface, with the scripted referee and with the real one."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from playing_agent import RIGHT
from scripted_referee import COMMAND as SCRIPTED

import arena
import arena.runs.engine
from arena import Arena, RunRefused, UsageError, Verdict
from arena.paths import Paths
from arena.records.index import Store
from arena.runs.engine import Engine
from sandbox.protocol.events import AnyEvent, Cancelled, Checked, Finished, PhaseStarted, Refused, RunStarted


def test_importing_it_loads_nothing_heavy():
    program = "import sys, arena; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "msgspec", "click", "textual", "arena.api"} & set(loaded.stdout.split())


@pytest.mark.parametrize("name", arena.__all__)
def test_every_name_can_be_imported(name):
    assert getattr(arena, name).__name__ == name


def test_name_that_is_not_there_is_attribute_error():
    with pytest.raises(AttributeError, match="Areena"):
        arena.Areena  # noqa: B018


@pytest.fixture
async def scripted(paths: Paths) -> AsyncIterator[Arena]:
    """An arena with the scripted referee."""
    async with Engine(paths, command=SCRIPTED) as engine, Arena(judge=engine) as made:
        yield made


async def test_calls_at_once_are_judged_in_turn(scripted: Arena):
    reports = await asyncio.gather(*(scripted.judge(13, "pass", world=2, device="cpu") for _ in range(3)))
    assert [report.verdict for report in reports] == [Verdict.PASS] * 3
    assert len({report.run_id for report in reports}) == 3


async def test_slow_call_is_cancelled_and_next_one_judged(scripted: Arena):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await scripted.judge(13, "wait", device="cpu")
    assert (await scripted.judge(13, "wrong", device="cpu")).verdict is Verdict.WRONG_RESULT


async def test_events_that_are_left_early_cancel_the_run(scripted: Arena):
    seen = []
    async with aclosing(scripted.events(13, "wait", device="cpu")) as events:
        async for event in events:
            seen.append(type(event))
            if isinstance(event, PhaseStarted):
                break
    assert seen == [RunStarted, PhaseStarted]
    assert (await scripted.judge(13, "pass", device="cpu")).verdict is Verdict.PASS


async def test_half_a_character_is_a_usage_error(scripted: Arena):
    with pytest.raises(UsageError, match="half a character at position 2"):
        await scripted.judge(1, "# \ud800")
    with pytest.raises(UsageError):
        await scripted.judge("\ud800", RIGHT)
    with pytest.raises(UsageError):
        await scripted.judge(1, RIGHT, dtype="\ud800")


async def test_what_cannot_be_run_is_a_usage_error(scripted: Arena, tmp_path: Path):
    for problem, kernel, sizes in (
        ("no_such_problem", "pass", {}),
        (13, tmp_path / "no_such_file.py", {}),
        (13, "pass", {"Q": 3}),
        (13, "refuse", {}),
    ):
        with pytest.raises(UsageError):
            await scripted.judge(problem, kernel, device="cpu", sizes=sizes)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("device", "tpu"),
        ("preset", ["tiny"]),
        ("world", True),
        ("world", 2.0),
        ("world", 65),
        ("rounds", -5),
        ("rounds", 1.5),
        ("rounds", 10_001),
        ("budget_s", float("nan")),
        ("budget_s", 0.0),
        ("budget_s", "1"),
        ("sizes", {"M": 1.5}),
    ],
)
async def test_option_out_of_range_is_usage_error(scripted: Arena, option: str, value: object):
    options: Any = {"device": "cpu", option: value}
    with pytest.raises(UsageError) as refused:
        await scripted.judge(13, "pass", **options)
    assert option.rstrip("s") in refused.value.message
    with pytest.raises(UsageError):
        await anext(scripted.events(13, "pass", **options))


async def told(events: AsyncIterator[AnyEvent], kinds: list[type]) -> None:
    """Adds the kinds of all events to `kinds`."""
    async for event in events:
        kinds.append(type(event))


@pytest.mark.slow
async def test_on_the_real_referee(tmp_path: Path, shared_referee: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena.runs.engine, "COMMAND", shared_referee.command)
    file = tmp_path / "mine.py"
    file.write_text(RIGHT)
    async with Arena(tmp_path / "arena") as here:
        assert here.jail
        assert here.problem("allreduce").id == 1
        report = await here.judge(1, file, world=2, device="cpu", preset="tiny", rounds=0)
        assert (report.verdict, report.world, report.kernel) == (Verdict.PASS, 2, str(file))

        kinds: list[type] = []
        await told(here.events(1, RIGHT, world=2, device="cpu", preset="tiny", rounds=0), kinds)
        assert kinds.index(RunStarted) < kinds.index(Checked) < kinds.index(Finished) == len(kinds) - 1

        sleeps = f"import time\n{RIGHT.replace('total = ', 'time.sleep(60); total = ')}"
        async with aclosing(here.events(1, sleeps, world=2, device="cpu", preset="tiny", rounds=0)) as events:
            async for event in events:
                assert not isinstance(event, Checked | Cancelled)
                if isinstance(event, PhaseStarted) and event.phase == "check":
                    break

        refusal: list[type] = []
        with pytest.raises(RunRefused, match="another number of ranks"):
            await told(here.events(41, RIGHT, world=2, device="cpu", sizes={"M": 16, "N": 36}, rounds=0), refusal)
        assert refusal[-1] is Refused

        wrong = await here.judge(
            1, "def solution(tensor):\n    return tensor.clone()\n", world=2, device="cpu", rounds=0
        )
        assert wrong.verdict is Verdict.WRONG_RESULT
    store = Store(tmp_path / "arena/data/results.sqlite", tmp_path / "arena/data/runs")
    assert [entry.verdict for entry in store.history(1)] == [Verdict.WRONG_RESULT, Verdict.PASS, Verdict.PASS]
