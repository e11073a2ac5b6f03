"""The engine: every run ends exactly once, a newer run wins, and a referee that fails is replaced."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest
from msgspec.structs import replace
from scripted_referee import COMMAND
from stored_runs import entry_in
from waiting import PATIENCE_S, comes_true

import arena.runs.engine
import arena.runs.referee_process
from arena.errors import FolderUnwritable, RefereeFailed, RunCancelled, RunRefused
from arena.machine import calibration
from arena.machine.facts import this_machine
from arena.paths import Paths
from arena.records.header import read_events, read_header
from arena.records.index import Store
from arena.records.json_lines import sync
from arena.runs.engine import Engine
from arena.runs.judge import Notice, RunInProgress, RunRequest, header_of, judge_to_end, judge_to_verdict
from arena.runs.referee_process import RefereeProcess
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.workspace.kernels import Workspace
from problems.catalogue import load_catalogue
from sandbox.machine.locked_folder import WORLD
from sandbox.protocol import events
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import CheckPoison, MakeArenas, Wake
from sandbox.protocol.verdict import Verdict
from sandbox.referee.main import Referee

PROBLEM = load_catalogue().find("13")
SETTING = choose_setting(PROBLEM, Choice(world=2, device="cpu"), Settings())


def request(source: str) -> RunRequest:
    return RunRequest(problem=PROBLEM, setting=SETTING, kernel_name="kernel.py", source=source)


async def verdict(engine: Engine, source: str) -> Verdict:
    end = await (await engine.judge(request(source))).end()
    assert isinstance(end, events.Finished)
    return end.result.verdict


async def test_a_run_is_judged_journalled_and_indexed(engine: Engine, paths: Paths) -> None:
    seen: list[events.AnyEvent] = []
    unsubscribe = engine.subscribe(seen.append)
    run = await engine.judge(request("pass"))
    assert isinstance(await run.end(), events.Finished)
    run_id = run.run_id
    await engine.close()
    for _ in range(2):
        unsubscribe()
    assert engine._listeners == []
    journal = paths.runs / f"{run_id}.jsonl"
    header = read_header(journal)
    assert (header.source, header.correctness_only) == ("pass", False)
    assert header_of(replace(request("pass"), rounds=0)).correctness_only
    assert list(read_events(journal)) == [event for event in seen if getattr(event, "run_id", None) == run_id]
    assert [event async for event in run.events()] == list(read_events(journal))
    entry = entry_in(Store(paths.database, paths.runs), run_id)
    assert (entry.verdict, entry.median, entry.outcome) == (Verdict.PASS, 1.5, "faster")
    assert Workspace(paths.workspace).kernel(entry.sha256).source == "pass"


async def test_baseline_is_indexed_and_its_text_kept_nowhere(
    engine: Engine, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, synced = Mock(side_effect=Store), Mock(side_effect=sync)
    monkeypatch.setattr(arena.runs.engine, "Store", opened)
    monkeypatch.setattr(arena.runs.engine, "sync", synced)
    await engine.start(SETTING)
    await comes_true(lambda: "spare" in engine.worlds)
    assert engine.jail == "none"
    runs = [await judge_to_end(engine, replace(request(""), kernel_name="baseline")) for _ in range(2)]
    await engine.close()
    assert opened.call_count == 1
    journals = sorted(paths.runs / f"{run.header.run_id}.jsonl" for run in runs)
    assert sorted(call[0] for call, _ in synced.call_args_list) == journals  # both are stored at the same time
    assert not paths.workspace.exists()


def test_header_has_what_request_leaves_out() -> None:
    asked = replace(request("pass"), rounds=None, budget_s=8.0)
    header = header_of(asked)
    assert (header.source, header.preset_sizes, header.machine) == ("pass", True, this_machine("cpu").digest)
    assert (asked.most_s, replace(asked, rounds=3).most_s) == (8.0, None)
    other = replace(asked, kernel_name="baseline", source="", setting=replace(SETTING, sizes={"M": 1}))
    header = header_of(other, "elsewhere")
    assert (header.source, header.preset_sizes, header.machine) == (PROBLEM.baseline_source, False, "elsewhere")


async def test_verdict_comes_before_the_end(engine: Engine, paths: Paths) -> None:
    heard: list[events.AnyEvent] = []
    run, judgement = await judge_to_verdict(engine, request("measures"), heard.append)
    assert (run.ended, judgement.result.verdict, type(heard[-1])) == (False, Verdict.PASS, events.Judged)
    for rank in (0, 1):
        engine._on_event(events.Log(run_id=engine.running, rank=rank, text="x\n"))
    assert run.judgement(run.judged).printed == "[rank 0] x\n[rank 1] x\n"
    await engine.recorded(run.run_id)
    assert entry_in(Store(paths.database, paths.runs), run.run_id).median == 1.5  # before the end, too
    await run.cancel()
    assert run.watchdog.cancelled()


async def test_times_that_cannot_be_stored_are_told(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena.runs.engine, "sync", Mock(side_effect=OSError("disk full")))
    notices: list[Notice] = []
    async with Engine(paths, command=COMMAND, notify=notices.append) as engine:
        assert await verdict(engine, "pass") is Verdict.PASS
    assert [notice.message for notice in notices] == ["cannot store the times of a baseline variant: disk full"]


async def test_measurement_that_fails_says_why(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    measuring = asyncio.create_task(engine.time_transfers(SETTING))
    await comes_true(lambda: engine._listeners)
    for text in ("no room", "too late"):
        engine._tell(events.Fatal(message=text))
    with pytest.raises(RefereeFailed, match="no room"):
        await measuring
    monkeypatch.setattr(arena.runs.engine, "MEASURING_S", 0.05)
    with pytest.raises(RefereeFailed, match="nothing was measured within 0 s"):
        await engine.time_transfers(SETTING)
    assert engine._listeners == []


async def judged(engine: Engine) -> RunInProgress:
    """A run that goes on measuring after its verdict."""
    run = await engine.judge(request("measures"))
    async for event in run.events():
        if isinstance(event, events.Judged):
            break
    await engine.recorded(run.run_id)
    return run


async def test_longer_measurement_replaces_verdict_so_far(engine: Engine, paths: Paths) -> None:
    run = await judged(engine)
    store = Store(paths.database, paths.runs)
    entry = entry_in(store, run.run_id)
    assert (entry.verdict, entry.median, run.ended) == (Verdict.PASS, 1.5, False)
    assert not paths.workspace.exists()  # the text is kept when the run ends
    longer = replace(run.judged, speedup=events.Speedup(call=events.Interval(1.3, 1.2, 1.4), device=None))
    engine._on_event(events.Finished(run_id=run.run_id, sha256=run.header.sha256, result=longer))
    await engine.recorded(run.run_id)
    assert [entry.median for entry in store.history(13)] == [1.3]
    assert paths.workspace.exists()
    await comes_true(lambda: not engine._recorder._recording)


async def test_referee_that_dies_later_leaves_verdict(engine: Engine, paths: Paths) -> None:
    run = await judged(engine)
    await engine._kill_referee()
    end = await run.end()
    assert isinstance(end, events.Finished)
    assert end.result.verdict is Verdict.PASS


@pytest.mark.parametrize(("source", "kept"), [("times", None), ("measures", 1.5)])
async def test_replaced_measurement_keeps_what_it_found(
    engine: Engine, paths: Paths, source: str, kept: float | None
) -> None:
    replaced = await engine.judge(request(source))
    async for event in replaced.events():
        if isinstance(event, events.Checked):
            break
    assert await verdict(engine, "pass") is Verdict.PASS
    assert isinstance(await replaced.end(), events.Cancelled)
    await engine.close()
    entry = entry_in(Store(paths.database, paths.runs), replaced.run_id)
    assert (entry.verdict, entry.median) == (Verdict.PASS, kept)


async def test_newest_of_many_runs_is_judged(engine: Engine) -> None:
    ends: list[events.AnyEvent] = []
    engine.subscribe(
        lambda event: ends.append(event) if isinstance(event, events.Finished | events.Cancelled) else None
    )
    requests = [*(request("wait") for _ in range(5)), request("pass")]
    runs = await asyncio.gather(*map(engine.judge, requests))
    assert isinstance(await runs[-1].end(), events.Finished)
    for run in runs[:-1]:
        assert isinstance(await run.end(), events.Cancelled)
    ids = sorted(run.run_id for run in runs)
    assert sorted(event.run_id for event in ends if isinstance(event, events.Finished | events.Cancelled)) == ids


async def test_cancel_ends_run_and_next_one_works(engine: Engine) -> None:
    run = await engine.judge(request("wait"))
    await engine.cancel()
    assert isinstance(await run.end(), events.Cancelled)
    assert engine.running is None
    async with engine._turn:  # this one has not begun
        waiting = asyncio.create_task(engine.judge(request("pass")))
        await comes_true(lambda: engine.unended)
        await engine.cancel()
    assert isinstance(await (await waiting).end(), events.Cancelled)
    assert await verdict(engine, "pass") is Verdict.PASS


@pytest.mark.parametrize("source", ["die", "garbage"])
async def test_failing_referee_is_harness_error_and_replaced(paths: Paths, source: str) -> None:
    notices: list[Notice] = []
    async with Engine(paths, command=COMMAND, notify=notices.append) as engine:
        run = await engine.judge(request(source))
        folders = f"{WORLD}{engine._referee.pid}-*"
        result = (await run.end()).result
        assert (result.verdict, result.failure.phase) == (Verdict.HARNESS_ERROR, "check")
        assert source != "die" or (result.failure.text, "ended with status 9" in result.detail) == ("last words", True)
        assert not [*Path(tempfile.gettempdir()).glob(folders)]
        assert await verdict(engine, "pass") is Verdict.PASS
    (notice,) = notices
    assert notice.message.startswith("the referee ")
    assert "doctor" in notice.advice


async def test_run_is_sent_with_what_was_measured_here(
    engine: Engine, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    masses = {"call short": [-0.5] * calibration.VALUES}
    engine._on_event(events.WorldOffsets(setting=SETTING, masses=masses))
    await comes_true(lambda: calibration.offsets_for(paths.calibrations, SETTING))
    times = {"baseline-graph": events.Microseconds(call=5.0, device=None)}
    calibration.keep_times(paths.calibrations, SETTING, "baseline-graph", times["baseline-graph"])
    calibration.keep(calibration.Calibration, paths.calibrations, await engine.calibrate(SETTING))
    sent: list[events.AnyCommand] = []
    send = RefereeProcess.send

    async def noted(referee: RefereeProcess, command: events.AnyCommand) -> None:
        sent.append(command)
        await send(referee, command)

    monkeypatch.setattr(RefereeProcess, "send", noted)
    assert await verdict(engine, "pass") is Verdict.PASS
    (run,) = (command for command in sent if isinstance(command, events.Run))
    assert (run.peaks, run.offsets, run.beside) == ({"local": 2e9}, masses, times)


async def test_a_referee_that_hangs_is_given_up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(arena.runs.engine, "OVERDUE_S", 0.2)
        assert await verdict(engine, "hang") is Verdict.HARNESS_ERROR
    assert await verdict(engine, "pass") is Verdict.PASS


async def test_referee_that_hangs_cannot_hold_up_cancel(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena.runs.engine, "CANCEL_S", 0.2)
    notices: list[Notice] = []
    async with Engine(paths, command=COMMAND, notify=notices.append) as engine:
        run = await engine.judge(request("hang"))
        process = Path(f"/proc/{engine._referee.pid}")
        await engine.cancel()
        assert isinstance(await run.end(), events.Cancelled)
        await comes_true(lambda: not process.exists())
        assert await verdict(engine, "pass") is Verdict.PASS
    assert notices == []  # the engine killed it: nothing is wrong with the machine


async def test_fatal_fault_ends_run_with_its_words(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena.runs.engine, "FATAL_S", 0.1)
    end = await (await engine.judge(request("fatal"))).end()
    assert isinstance(end, events.Finished)
    assert end.result.verdict is Verdict.HARNESS_ERROR
    assert "baseline world is gone" in end.result.detail


async def test_result_of_run_that_has_none_says_why(engine: Engine, paths: Paths) -> None:
    refused = await engine.judge(request("refuse"))
    assert isinstance(await refused.end(), events.Refused)
    with pytest.raises(RunRefused, match="sizes do not fit"):
        await refused.result()
    overtaken = await engine.judge(request("wait"))
    await engine.judge(request("pass"))
    with pytest.raises(RunCancelled, match="phase check"):
        await overtaken.result()
    await engine.close()
    assert entry_in(Store(paths.database, paths.runs), refused.run_id) is None


async def test_events_come_live_and_again_to_latecomers(engine: Engine) -> None:
    run = await engine.judge(request("wait"))
    seen: list[events.AnyEvent] = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in run.events():
            seen.append(event)
            if isinstance(event, events.PhaseStarted):
                await run.cancel()
    assert [type(event) for event in seen] == [events.RunStarted, events.PhaseStarted, events.Cancelled]
    assert [event async for event in run.events()] == seen
    assert run.events_so_far == tuple(seen)
    assert RunInProgress(run.header, Mock(), Mock()).last_at >= run.last_at  # no event has come yet
    await run.cancel()  # there is nothing left to cancel


async def test_a_run_that_was_overtaken_cancels_nobody_else(engine: Engine) -> None:
    overtaken = await engine.judge(request("wait"))
    newer = await engine.judge(request("times"))
    await overtaken.cancel()
    assert engine.running == newer.run_id
    await comes_true(lambda: any(isinstance(event, events.Checked) for event in newer.events_so_far))
    await newer.cancel()
    assert (await newer.end()).result.verdict is Verdict.PASS  # it was not timed, but checked


async def test_request_cancelled_while_referee_starts_leaves_whole_journal(paths: Paths) -> None:
    command = (sys.executable, "-c", "import time; time.sleep(60)")
    async with Engine(paths, command=command) as engine:
        ends: list[events.AnyEvent] = []
        engine.subscribe(ends.append)
        asking = asyncio.create_task(engine.judge(request("pass")))
        await comes_true(lambda: list(paths.runs.glob("*.jsonl")))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    (journal,) = paths.runs.glob("*.jsonl")
    assert [type(event) for event in read_events(journal)] == [events.Cancelled]
    assert [type(event) for event in ends] == [events.Cancelled]


async def test_variables_reach_the_referee_and_not_this_process(paths: Paths) -> None:
    async with Engine(paths, command=COMMAND, environment={"PKB_SCRIPTED_OUTCOME": "slower"}) as engine:
        judgement = await judge_to_end(engine, request("pass"))
    assert judgement.report.outcome == "slower"
    assert "PKB_SCRIPTED_OUTCOME" not in os.environ


async def test_closing_ends_the_run_and_the_process(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena.runs.referee_process, "SHUTDOWN_S", PATIENCE_S)
    engine = Engine(paths, command=COMMAND)
    run = await engine.judge(request("wait"))
    referee = engine._referee
    await engine.close()
    assert isinstance(await run.end(), events.Cancelled)
    assert referee._process.returncode == 0  # nobody had to kill it
    with pytest.raises(ProcessLookupError):
        os.kill(referee.pid, 0)
    await engine.close()
    assert isinstance(await (await engine.judge(request("pass"))).end(), events.Cancelled)
    assert engine._referee is None  # nor was another one started


async def test_referee_without_start_is_said_with_its_reason(paths: Paths) -> None:
    ends = (sys.executable, "-c", "raise SystemExit('no room')")
    for command, why in (ends, "no room"), (("/nowhere",), "cannot start the referee: .*nowhere"):
        async with Engine(paths, command=command) as engine:
            with pytest.raises(RefereeFailed, match=why) as failed:
                await engine.start()
            assert "doctor" in failed.value.advice
            assert await verdict(engine, "pass") is Verdict.HARNESS_ERROR


async def test_an_unwritable_data_folder_stops_before_anything_starts(paths: Paths) -> None:
    paths.data.parent.mkdir(parents=True)
    paths.data.write_text("a file where the folder should be")
    async with Engine(paths, command=COMMAND) as engine:
        with pytest.raises(FolderUnwritable) as caught:
            await engine.start()
        assert engine._referee is None
    assert "PKB_ARENA_HOME" in caught.value.advice


async def test_failing_listener_stops_neither_run_nor_others(engine: Engine) -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    engine.subscribe(lambda event: 1 / 0)  # type: ignore[arg-type,return-value]
    assert await verdict(engine, "pass") is Verdict.PASS
    assert reported


async def test_words_of_referee_are_no_kernel_prints(engine: Engine) -> None:
    """For the kernel `budget`, the scripted referee prints a line of its own."""
    run = await engine.judge(request("budget"))
    judgement = await run.result()
    assert [event.rank async for event in run.events() if isinstance(event, events.Log)] == [-1]
    assert judgement.printed == ""


@pytest.mark.slow
def test_answer_for_cancelled_run_is_not_the_next() -> None:
    setting = choose_setting(load_catalogue().find("1"), Choice(preset="tiny", world=2, device="cpu"), Settings())
    referee = Referee()
    try:
        stage = referee.oracle.prepare(setting)
        for turn in range(6):
            stage.world.tell(MakeArenas(stage.layout, own=not turn, side=0))
            answers = referee.await_all(stage.world, Kind.MAKE_ARENAS, 10.0)
            descriptors = [fd for answer in answers for fd in answer.fds]
            for fd in descriptors:
                os.close(fd)
            assert len(descriptors) == 2 * len(answers)
            stage.world.tell(CheckPoison([]))  # the last order of a check, which is cancelled here
            referee.oracle.finish_orders(referee.poll)
        stage.world.tell(Wake())  # as after every killed contender on GPUs
        referee.await_all(stage.world, Kind.AWAKE, 10.0)
    finally:
        referee.close()
