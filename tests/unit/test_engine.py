"""The engine: every run ends exactly once, a newer run wins, and a referee that fails is replaced."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import arena.engine
from arena.engine import Engine
from arena.errors import FolderUnwritable, RefereeFailed
from arena.journal import read_events, read_header
from arena.paths import Paths
from arena.run_request import Notice, RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.store import Store
from problems.catalogue import load_catalogue
from sandbox.events import AnyEvent, Cancelled, Finished, Refused
from sandbox.verdict import Verdict

COMMAND = (sys.executable, str(Path(__file__).with_name("scripted_referee.py")))
PROBLEM = load_catalogue().find("13")
SETTING = choose_setting(PROBLEM, Choice(world=2, device="cpu"), Settings())


def request(source: str) -> RunRequest:
    return RunRequest(problem=PROBLEM, setting=SETTING, kernel_name="kernel.py", source=source)


@pytest.fixture
async def engine(paths: Paths) -> AsyncIterator[Engine]:
    async with Engine(paths, command=COMMAND) as engine:
        yield engine


async def verdict(engine: Engine, source: str) -> Verdict:
    end = await engine.wait(await engine.run(request(source)))
    assert isinstance(end, Finished)
    return end.result.verdict


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_run_is_judged_journalled_and_indexed(engine: Engine, paths: Paths) -> None:
    seen: list[AnyEvent] = []
    engine.subscribe(seen.append)
    run_id = await engine.run(request("pass"))
    end = await engine.wait(run_id)
    assert isinstance(end, Finished)
    await engine.close()
    journal = paths.runs / f"{run_id}.jsonl"
    assert read_header(journal).source == "pass"
    assert list(read_events(journal)) == [event for event in seen if getattr(event, "run_id", None) == run_id]
    entry = Store(paths.database, paths.runs).entry(run_id)
    assert entry is not None
    assert (entry.verdict, entry.speedup, entry.outcome) == (Verdict.PASS, 1.5, "faster")


async def test_a_newer_run_cancels_the_one_in_progress(engine: Engine) -> None:
    older = await engine.run(request("wait"))
    newer = await engine.run(request("pass"))
    assert isinstance(await engine.wait(older), Cancelled)
    assert isinstance(await engine.wait(newer), Finished)


async def test_of_many_runs_at_once_the_newest_is_judged_and_every_one_ends_once(engine: Engine) -> None:
    ends: list[AnyEvent] = []
    engine.subscribe(lambda event: ends.append(event) if isinstance(event, Finished | Cancelled) else None)
    runs = await asyncio.gather(*(engine.run(request("wait")) for _ in range(5)), engine.run(request("pass")))
    assert isinstance(await engine.wait(runs[-1]), Finished)
    for run_id in runs[:-1]:
        assert isinstance(await engine.wait(run_id), Cancelled)
    assert sorted(event.run_id for event in ends if isinstance(event, Finished | Cancelled)) == sorted(runs)


async def test_cancel_ends_the_run_and_the_next_one_works(engine: Engine) -> None:
    run_id = await engine.run(request("wait"))
    await engine.cancel()
    assert isinstance(await engine.wait(run_id), Cancelled)
    assert engine.running is None
    assert await verdict(engine, "pass") is Verdict.PASS


@pytest.mark.parametrize("source", ["die", "garbage"])
async def test_a_referee_that_fails_ends_the_run_as_harness_error_and_is_replaced(
    engine: Engine, source: str
) -> None:
    notices: list[Notice] = []
    engine.subscribe_notices(notices.append)
    assert await verdict(engine, source) is Verdict.HARNESS_ERROR
    assert await verdict(engine, "pass") is Verdict.PASS
    assert len(notices) == 1


async def test_what_a_dying_referee_said_last_is_in_the_result(engine: Engine) -> None:
    end = await engine.wait(await engine.run(request("die")))
    assert isinstance(end, Finished)
    assert end.result.failure is not None
    assert end.result.failure.text == "last words"


async def test_a_referee_that_hangs_is_given_up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena.engine, "OVERDUE_S", 0.2)
    assert await verdict(engine, "hang") is Verdict.HARNESS_ERROR
    assert await verdict(engine, "pass") is Verdict.PASS


async def test_a_referee_that_hangs_cannot_hold_up_a_cancel(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena.engine, "CANCEL_S", 0.2)
    run_id = await engine.run(request("hang"))
    await engine.cancel()
    assert isinstance(await engine.wait(run_id), Cancelled)
    assert await verdict(engine, "pass") is Verdict.PASS


async def test_a_fatal_fault_ends_the_run_with_its_words(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena.engine, "FATAL_S", 0.1)
    end = await engine.wait(await engine.run(request("fatal")))
    assert isinstance(end, Finished)
    assert end.result.verdict is Verdict.HARNESS_ERROR
    assert "baseline world is gone" in end.result.detail


async def test_a_refused_setting_is_not_a_result(engine: Engine, paths: Paths) -> None:
    run_id = await engine.run(request("refuse"))
    assert isinstance(await engine.wait(run_id), Refused)
    await engine.close()
    assert Store(paths.database, paths.runs).entry(run_id) is None


async def test_closing_ends_the_run_and_the_process(paths: Paths) -> None:
    engine = Engine(paths, command=COMMAND)
    run_id = await engine.run(request("wait"))
    assert engine._referee is not None
    pid = engine._referee.pid
    await engine.close()
    assert isinstance(await engine.wait(run_id), Cancelled)
    assert not alive(pid)
    await engine.close()


async def test_a_referee_that_does_not_start_is_said_with_its_reason(paths: Paths) -> None:
    command = (sys.executable, "-c", "raise SystemExit('no room')")
    async with Engine(paths, command=command) as engine:
        with pytest.raises(RefereeFailed, match="no room"):
            await engine.start()
        assert await verdict(engine, "pass") is Verdict.HARNESS_ERROR


async def test_an_unwritable_data_folder_stops_before_anything_starts(paths: Paths) -> None:
    paths.data.parent.mkdir(parents=True)
    paths.data.write_text("a file where the folder should be")
    async with Engine(paths, command=COMMAND) as engine:
        with pytest.raises(FolderUnwritable) as caught:
            await engine.start()
        assert engine._referee is None
    assert "PKB_ARENA_HOME" in caught.value.advice


async def test_a_failing_listener_stops_neither_the_run_nor_the_others(engine: Engine) -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    engine.subscribe(lambda event: 1 / 0)  # type: ignore[arg-type,return-value]
    assert await verdict(engine, "pass") is Verdict.PASS
    assert reported
