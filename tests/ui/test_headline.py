"""The lines above and below the panes: complete where there is room, and correct about phases and time."""

import pytest
from msgspec.structs import replace
from run_states import fold
from stored_runs import record

from arena.runs.run_state import RunState
from benchmarks.app.measurements import READY
from sandbox.protocol.events import (
    Failure,
    Finished,
    Interval,
    LeaseHolder,
    PhaseEnded,
    PhaseStarted,
    RivalResult,
    RunStarted,
    Speedup,
    Waiting,
    WorldChanged,
)
from sandbox.protocol.verdict import Verdict
from screens import figures
from screens.kernel.headline import answer_of, earlier_answer, worlds_words
from screens.kernel.phase_line import fitting, phase_parts


def words(state: RunState, now: float = 100.0, most_s: float | None = None) -> str:
    return "  ".join(text for text, _ in phase_parts(state, now, most_s))


def test_unneeded_phase_is_not_waited_for(events) -> None:
    passed = [event for event in events("pass") if getattr(event, "phase", "") != "compile"]
    assert "compile" not in words(fold(passed))


def test_failure_while_compiling_shows_there_alone(events) -> None:
    failure = Failure(phase="compile", message="no such type", advice="")
    *_, end = events("error")
    assert isinstance(end, Finished)
    state = fold([event for event in events("error") if isinstance(event, RunStarted)])
    state.apply(PhaseStarted(run_id=state.run_id, phase="load", limit_s=30.0, at=1.0))
    state.apply(replace(end, result=replace(end.result, failure=failure)))
    assert words(state).split("  ")[:2] == ["– load", "✗ compile"]
    # The compiler has ended, but without success.
    state.apply(PhaseEnded(run_id=state.run_id, phase="compile", seconds=0.23))
    assert words(state).split("  ")[:2] == ["– load", "✗ compile 0.23"]


def test_late_phase_names_its_limit(events) -> None:
    started = [event for event in events("timing") if not isinstance(event, PhaseStarted | PhaseEnded)]
    state = fold(started[:1])
    state.apply(PhaseStarted(run_id=state.run_id, phase="check", limit_s=10.0, at=100.0))
    assert "▸ check 2.0 s" in words(state, 102.0)
    assert "limit" not in words(state, 102.0)
    assert "check 5.0 s, limit 10 s without waits" in words(state, 105.0)
    state.apply(PhaseStarted(run_id=state.run_id, phase="time", limit_s=34.0, at=200.0))
    assert "time 4.5 s · no speedup yet" in words(state, 204.5, most_s=4.0)
    assert "s, limit 4 s of measuring · round 40/80" in words(fold(events("timing")), most_s=4.0)
    parts = [("✓ load 0.05", ""), ("▸ Waiting", ""), (f"({'x' * 30})", ""), ("esc", "")]
    assert fitting(parts, 30) == [*parts[:2], parts[3]]  # a long reason leaves room for the key and the other phases


def noisy(state: RunState) -> RunState:
    assert state.result is not None
    wide = Speedup(call=Interval(0.99, 0.49, 2.1), device=None)
    state.result = replace(state.result, speedup=wide, outcome="too noisy", clock="call")
    return state


def test_noisy_result_has_range_and_no_large_figure(events) -> None:
    answer = answer_of(noisy(fold(events("told"))), {})
    assert (answer.words, answer.outcome) == ("✓ PASS", "~ too noisy")
    assert (answer.big, answer.support) == ("✓", "0.49–2.10× end-to-end")
    assert answer.asks == "Measure longer (ctrl+l)"
    state = noisy(fold(events("told")))
    assert state.result is not None
    state.result = replace(state.result, speedup=Speedup(None, None), told="no claim: other programs use the cores")
    for said in (("~ too noisy", "End them, then run again (F5)"), ("~ too noisy · measuring on", "")):
        answer = answer_of(state, {})
        assert (answer.outcome, answer.asks, answer.support, answer.sign) == (*said, state.told.told, "")
        state.judged, state.result = state.result, None


def test_slower_kernel_has_green_pass_and_red_speedup(events) -> None:
    state = fold(events("told"))
    slow = Speedup(call=Interval(0.5, 0.49, 0.51), device=None)
    state.result = replace(state.result, speedup=slow, outcome="slower", clock="call")
    answer = answer_of(state, {})
    assert (answer.words, answer.colour) == ("✓ PASS", "success")
    assert (answer.outcome, answer.outcome_colour) == ("▼ slower", "error")


def other_failed(state: RunState) -> RunState:
    """The state as it is if the other kernel of the run could not be loaded."""
    assert state.result is not None
    failure = Failure(phase="load", message="no solution", advice="write one", line=3)
    rival = RivalResult(Verdict.COMPILE_ERROR, "no solution", failure, "0" * 64)
    state.result = replace(state.result, speedup=None, outcome="", clock="", told="", rival=rival)
    state.samples.clear()
    return state


@pytest.mark.slow
async def test_the_panes_say_why_the_other_kernel_failed(open_app, events, until, screen_text) -> None:
    async with open_app(problem="13", size=(100, 40)) as (app, pilot):
        screen, (*rest, end) = app.screen, events("told")
        state = other_failed(fold([*rest, end]))
        assert all(said in words(state) for said in ("✗ load", ", other kernel"))
        for event in [*rest, replace(end, result=state.result)]:
            screen.apply(event)
        screen.session.state.samples.clear()
        screen.draw(force=True)
        shown = ("What is wrong with the other kernel", "not timed; other kernel: ✗ COMPILE ERROR", "no solution")
        await until(pilot, lambda: all(said in screen_text(app) for said in shown))
        assert "jumps to line" not in screen_text(app)
        assert any("other kernel: ✗ COMPILE ERROR" in line.text for line in screen.query_one("#log")._lines)


def waiting(events) -> RunState:
    state = fold(events("timing"))
    state.samples.clear()
    holder = LeaseHolder(pid=4711, user="ada", problem="allreduce", since=0.0)
    state.apply(Waiting(run_id=state.run_id, holder=holder, at=90.0))
    return state


def test_waiting_run_says_for_whom_and_how_long(events) -> None:
    state = waiting(events)
    answer = answer_of(state, {})
    assert (answer.words, answer.support) == ("✓ PASS", "Waiting: another run is timing")
    assert answer.advice.startswith("allreduce of ada, process 4711, since ")
    assert "▸ Waiting: another run is timing 12 s  (allreduce of ada, process 4711, since " in words(state, 102.0)
    state.apply(PhaseStarted(run_id=state.run_id, phase="time", limit_s=34.0, at=103.0))
    assert state.waiting is None
    assert "✓ waited 13" in words(state, 104.0)


@pytest.mark.slow
async def test_save_during_run_is_queued_at_once(open_app, events, until, screen_text) -> None:
    async with open_app(problem="13", size=(160, 40)) as (app, pilot):
        for event in events("timing"):
            app.screen.apply(event)
        app.screen.session.queue()
        shown = ("▸ QUEUED", "the earlier run ends first", "queued · esc twice cancels")
        await until(pilot, lambda: all(said in screen_text(app) for said in shown))


@pytest.mark.parametrize(
    ("text", "cells", "said"),
    [
        ("all of it", 9, "all of it"),
        ("all of it", 8, "all of…"),
        ("all_reduce, all_gather", 15, "all_reduce…"),
        ("all_reduce, all_gather", 8, "all_red…"),
        ("x", 0, ""),
        ("tiny · cpu · M=256", 13, "tiny · cpu…"),
        ("12 wrong (relative RMS error 2)", 20, "12 wrong (relative…"),
        ("three shared gradients in an expert-parallel backward", 42, "three shared gradients in an expert-paral…"),
    ],
)
def test_a_text_that_is_cut_says_so(text: str, cells: int, said: str) -> None:
    assert figures.cut(text, cells) == said


def test_earlier_run_without_claim_says_why() -> None:
    told = earlier_answer(record("r", outcome="too noisy", told="no claim: 4 pairs (6 are needed)"), "F5", "0" * 64)
    assert (told.words, told.outcome, told.support) == ("✓ PASS", "~ too noisy", "no claim: 4 pairs")


def test_worlds_that_are_ready_fit_the_narrowest_line() -> None:
    state = RunState()
    assert worlds_words(state) == "starting: referee process"
    for role in ("baseline", "spare", "reference"):
        state.apply(WorldChanged(role=role, state="ready", world=2, at=1.0))
    assert worlds_words(state) == "ready (oracle, spare and reference processes started)"
    assert READY in worlds_words(state)  # the measurement of keys waits for it
    assert len(worlds_words(state)) <= 58
    state.apply(WorldChanged(role="spare", state="starting", world=2, at=2.0))
    assert worlds_words(state) == "starting: spare process"
