"""The run state that is folded from events, for all screens, the watcher and replay."""

from msgspec.structs import replace
from run_states import fold
from stored_runs import result

from arena.runs.run_state import LOG_LINES, RunState
from sandbox.protocol import events
from sandbox.protocol.result import Failure, Seconds
from sandbox.protocol.verdict import Verdict

SETTING = events.Setting(problem_dir="p", preset="tiny", sizes={"M": 8}, world=2, device="cpu", dtype="bfloat16")


def started(run_id: str) -> events.RunStarted:
    return events.RunStarted(run_id=run_id, setting=SETTING, kernel_name="kernel.py", sha256="ab", at=1.0)


def timed(run_id: str, median: float) -> events.Timed:
    call = events.Interval(median=median, low=median - 0.1, high=median + 0.1)
    return events.Timed(run_id=run_id, round=1, rounds=8, calls=4, baseline_us=10.0, contender_us=8.0, call=call)


def test_a_run_goes_through_its_phases() -> None:
    state = fold([started("r1"), events.PhaseStarted(run_id="r1", phase="load", limit_s=5.0, at=1.5)])
    assert (state.running, state.setting, state.kernel_name, state.phase) == (True, SETTING, "kernel.py", "load")
    assert state.phases["load"].started_at == 1.5

    state.apply(events.PhaseEnded(run_id="r1", phase="load", seconds=0.25))
    assert state.phase == ""
    assert state.phases["load"].seconds == 0.25
    for phase in ("check", "compile"):
        state.apply(events.PhaseStarted(run_id="r1", phase=phase, limit_s=5.0, at=2.0))
    assert state.seconds == 0.25
    state.apply(events.PhaseEnded(run_id="r1", phase="load", seconds=0.5, at=2.5))
    assert state.phase == "compile"
    state.apply(events.PhaseEnded(run_id="r1", phase="compile", seconds=1.0, at=3.0))
    assert (state.phase, state.seconds) == ("check", 1.5)
    state.apply(events.PhaseEnded(run_id="r1", phase="prepare", seconds=2.0, at=4.0))  # its start is not in the journal
    assert (state.phases["prepare"].started_at, state.phases["prepare"].limit_s) == (4.0, 0.0)


def test_each_end_of_a_run_ends_its_phase() -> None:
    call = events.Interval(1.4, 1.3, 1.5)
    failure = Failure(phase="time", message="it is wrong", advice="")
    known = [started("r1"), events.PhaseStarted(run_id="r1", phase="time", limit_s=5.0, at=2.0)]
    known.append(events.Checked(run_id="r1", verdict=Verdict.PASS, seconds=0.2, failure=failure))
    known.append(events.Judged(run_id="r1", sha256="ab", result=result(call=call)))
    assert (fold(known).told, fold(known).failure, fold(known).measuring_on) == (result(call=call), failure, True)
    for verdict, seconds in ((Verdict.PASS, 3.5), (Verdict.WRONG_RESULT, None)):
        last = result(verdict, seconds=Seconds(time=3.5), failure=None if seconds else failure)
        state = fold([*known[:2], events.Finished(run_id="r1", sha256="cd", result=last)])
        assert (state.sha256, state.phases["time"].seconds, state.failure) == ("cd", seconds, last.failure)
    for end in (
        events.Finished(run_id="r1", sha256="cd", result=result()),
        events.Refused(run_id="r1", message="", advice=""),
        events.Cancelled(run_id="r1", phase="time"),
        events.Fatal(message="gone"),
    ):
        state = fold([*known, end])
        assert (state.running, state.measuring_on, state.phase) == (False, False, "")
    state.apply(events.Finished(run_id="r1", sha256="cd", result=result()))
    assert state.phases  # the same run, whose harness had failed


def test_wait_between_rounds_is_no_time_of_phase() -> None:
    began = [started("r1"), events.Waiting(run_id="r1", at=1.25)]
    began.append(events.PhaseStarted(run_id="r1", phase="time", limit_s=5.0, at=2.0))
    assert fold(began).waiting is None
    state = fold(
        [*began, *(events.Waiting(run_id="r1", at=at) for at in (3.0, 4.0)), replace(timed("r1", 1.3), at=5.5)]
    )
    assert (state.phases["time"].waited, state.waited, state.waiting) == (2.5, 3.25, None)
    state.apply(events.Waiting(run_id="r1", at=6.0))
    state.apply(events.Judged(run_id="r1", at=7.0, sha256="ab", result=result()))
    assert state.waiting is None  # it measured, even if no round had a time


def test_correctness_is_known_before_the_speed() -> None:
    state = fold([started("r1"), events.Checked(run_id="r1", verdict=Verdict.PASS, seconds=0.2)])
    assert state.verdict is Verdict.PASS
    assert state.headline is None
    state.apply(timed("r1", 1.3))
    assert state.headline.speedup.median == 1.3
    assert not state.measuring_on
    state.apply(events.Judged(run_id="r1", sha256="ab", result=result(call=events.Interval(1.4, 1.3, 1.5))))
    assert state.measuring_on
    state.apply(timed("r1", 1.5))
    assert state.headline.speedup.median == 1.5


def test_new_run_forgets_old_one_but_not_worlds() -> None:
    state = fold(
        [
            events.Ready(pid=1, jail="off"),
            events.WorldChanged(role="spare", state="ready", world=2),
            started("r1"),
            timed("r1", 1.1),
            events.Cancelled(run_id="r1", phase="time"),
        ]
    )
    assert state.cancelled_in == "time"
    assert not state.running
    state.apply(started("r2"))
    assert (state.run_id, state.samples, state.cancelled_in) == ("r2", [], None)
    assert state.jail == "off"
    assert state.worlds["spare"].state == "ready"


def test_late_events_of_an_older_run_change_nothing() -> None:
    late = events.Finished(run_id="r1", sha256="ab", result=result())
    state = fold([started("r1"), started("r2"), timed("r1", 9.0), late])
    assert (state.run_id, state.running, state.samples) == ("r2", True, [])


def test_refused_run_is_shown_without_start() -> None:
    state = fold([events.Refused(run_id="r9", message="world 3 is not allowed", advice="use 2 or 4")])
    assert state.run_id == "r9"
    assert state.refused is not None
    assert not state.running


def test_run_that_ended_before_it_began_is_shown() -> None:
    broken = result(Verdict.HARNESS_ERROR, detail="the referee did not start", sealed=False)
    state = fold([events.Finished(run_id="r1", sha256="ab", result=broken)])
    assert state.verdict is Verdict.HARNESS_ERROR
    assert not state.running


def test_the_log_is_bounded() -> None:
    state = RunState()
    state.apply(started("r1"))
    for number in range(LOG_LINES + 10):
        state.apply(events.Log(run_id="r1", rank=0, text=str(number)))
    assert len(state.log) == LOG_LINES
    assert state.log[-1].text == str(LOG_LINES + 9)
