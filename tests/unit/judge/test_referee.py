"""The referee's commands on simulated worlds: whatever fails, every run ends in one event and affects no later run."""

import itertools
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from made_kernels import Fault, MadeKernel, noisy, right, wrong
from made_machine import JAIL, MadeCpu, MadeGpu, MadeMachine
from made_worlds import OPEN_SECONDS, START_SECONDS, MadeProcesses
from stored_runs import result as run_result
from waiting import PATIENCE_S

from sandbox.machine.devices import KINDS
from sandbox.machine.scheduling import Share
from sandbox.protocol import events
from sandbox.protocol.frames import Kind
from sandbox.protocol.result import PairTimes, Transfers
from sandbox.protocol.verdict import Verdict
from sandbox.referee import main
from sandbox.referee.lease import Lease, Urgency
from sandbox.referee.main import OPTIONAL_WAYS, Referee
from sandbox.timing.disturbance import MOST_SESSIONS
from sandbox.timing.interval import half_width
from sandbox.timing.rounds import Rounds
from sandbox.worlds.exchange import CONTENDER, Failed
from sandbox.worlds.world import State


@pytest.fixture
def told(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[[], list[Any]]:
    """A function that returns the events printed since its last call."""
    return lambda: [events.decode_event(line) for line in capfdbinary.readouterr().out.splitlines()]


def result(found: list[Any]) -> events.Result:
    """Returns the result of the only run. Only events of worlds may follow the run's last event."""
    of_run = [event for event in found if not isinstance(event, events.WorldChanged)]
    assert isinstance(of_run[0], events.RunStarted)
    assert isinstance(of_run[-1], events.Finished)
    assert sum(isinstance(event, events.Finished) for event in of_run) == 1
    return of_run[-1].result


def phases(found: list[Any]) -> list[str]:
    return [event.phase for event in found if isinstance(event, events.PhaseStarted)]


def judged_by(
    referee: Referee, machine: MadeMachine, told: Callable[[], list[Any]], run_id: str = "1"
) -> events.Result:
    """Returns the result of a run of six rounds."""
    referee.judge(msgspec.structs.replace(machine.run(rounds=6), run_id=run_id))
    return result(told())


def test_run_is_judged_from_start_to_last_event(told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine("made-gpu", MadeKernel(noisy(50.0), noisy(40.0)))
    referee = machine.referee()
    referee.judge(machine.run(rounds=6))
    found = told()
    assert phases(found) == ["prepare", "load", "check", "prepare", "time"]
    judged = result(found)
    assert (judged.verdict, judged.outcome, judged.jail) == (Verdict.PASS, "faster", JAIL.name)
    assert judged.labels == ["library calls only"]
    referee.pipe.begin_run("2")
    for world in machine.started["spare"]:  # the last one runs no kernel yet
        referee.contenders.contender = machine.started["spare"][0]
        referee.hear(world, 0, world.state.value)
    assert [event.text for event in told() if isinstance(event, events.Log)] == ["dead"]
    assert all(later.at >= earlier.at for earlier, later in itertools.pairwise(found))


def test_wrong_kernel_waits_for_no_reference(told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine()
    machine.oracle.finding = lambda rank, order, slot: wrong()
    machine.faults["reference"] = [[Fault(Kind.OPEN)], [Fault(Kind.OPEN)]]  # they never answer
    machine.referee().judge(machine.run(rounds=6))
    found = told()
    judged = result(found)
    assert (judged.verdict, judged.rounds, judged.speedup) == (Verdict.WRONG_RESULT, 0, None)
    assert (judged.error.rms, judged.detail[:15]) == (1.0, "check, rank 0: ")
    assert phases(found) == ["prepare", "load", "check"]


def test_next_run_of_setting_has_only_fresh_world(told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine()
    referee = machine.referee()
    for seconds, made in ((0.0, right()), (2.0, wrong()), (2.0, right())):
        machine.kernels["kernel.py"].compile_s = seconds
        machine.oracle.finding = lambda rank, order, slot, made=made: made
        referee.judge(machine.run(rounds=6))
    found = told()
    (digest,) = {e.sha256 for e in found if isinstance(e, events.RunStarted)}
    assert [machine.processes(world).kept for world in machine.started["spare"][:3]] == [[], [], [digest]]
    assert phases(found).count("prepare") == 2
    assert len(machine.started["baseline"]) == 1
    assert len(machine.started["reference"]) == 2
    *used, spare = machine.started["spare"]
    assert [world.state for world in used] == [State.DEAD] * 3
    assert spare.state is not State.DEAD


@pytest.mark.parametrize(
    ("losses", "kernel", "verdict"),
    [(1, "baseline", Verdict.PASS), (2, "baseline", Verdict.HARNESS_ERROR), (1, "kernel.py", Verdict.OUT_OF_MEMORY)],
)
def test_baseline_is_never_at_fault_for_lost_rank(
    losses: int, kernel: str, verdict: Verdict, told: Callable[[], list[Any]]
) -> None:
    machine = MadeMachine()
    machine.faults["spare"] = [[Fault(Kind.GO, status=int(signal.SIGKILL), after=3)] for _ in range(losses)]
    run = msgspec.structs.replace(machine.run(rounds=6), kernel_name=kernel, source="" if kernel == "baseline" else "x")
    referee = machine.referee()
    referee.judge(run)
    assert result(told()).verdict is verdict
    assert judged_by(referee, machine, told).verdict is Verdict.PASS


def test_spare_opens_problem_while_oracle_world_does(told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine("made-gpu")
    machine.referee().judge(machine.run(rounds=2))
    found = told()
    at = {(e.role, e.state): e for e in reversed(found) if isinstance(e, events.WorldChanged)}
    prepared = next(e for e in found if isinstance(e, events.PhaseEnded) and e.phase == "prepare")
    opened_in = at["spare", "ready"].at - prepared.at
    assert opened_in < OPEN_SECONDS  # after the preparation it only waits for the rest


@pytest.mark.parametrize("arrives", [True, False])
def test_spare_opens_no_problem_likely_to_change(arrives: bool) -> None:
    machine = MadeMachine()
    referee = machine.referee()
    referee.contenders.prepare_spare(machine.setting())
    machine.poll(0.6)
    if arrives:
        referee.pipe.commands.append(machine.run())
    referee.wait_for_command()
    assert (referee.contenders.spares[0].state is State.STARTING) == arrives


@pytest.mark.parametrize(("rounds", "references"), [(0, 0), (3, 1), (4, 2), (40, 4), (None, 4)])
def test_fewer_worlds_run_the_baseline_for_few_rounds(rounds: int | None, references: int) -> None:
    machine = MadeMachine("made-gpu")
    machine.referee().judge(machine.run(rounds=rounds, budget_s=0.2))
    assert len(machine.started["reference"]) == references


def test_run_with_little_memory_says_so_and_continues(told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine()
    machine.oracle.references = 1
    referee = machine.referee()
    for _ in range(2):
        referee.judge(machine.run(budget_s=0.1))
    found = told()
    words = [event.text for event in found if isinstance(event, events.Log)]
    assert words == ["device memory fits 1 of 2 reference worlds\n"]
    assert [event.result.verdict for event in found if isinstance(event, events.Finished)] == [Verdict.PASS] * 2
    assert len(machine.started["reference"]) == 2  # one of them has ended


def test_baseline_against_itself_keeps_world_for_next_run(told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine()
    referee = machine.referee()
    run = events.Run(run_id="1", setting=machine.setting(), kernel_name="baseline", source="", rounds=6)
    referee.judge(run)
    assert result(told()).outcome == "even"
    kept = machine.started["spare"][0]
    assert kept.state is State.ARMED
    assert kept in referee.contenders.spares
    assert judged_by(referee, machine, told).verdict is Verdict.PASS
    assert kept.state is State.DEAD


def test_starting_spare_stands_still_while_kernel_is_timed() -> None:
    stopped: list[bool] = []

    def seen(calls: int) -> float:
        stopped.extend(world.processes.paused for world in referee.contenders.spares)
        return noisy(100.0)(calls)

    machine = MadeMachine(kernel=MadeKernel(seen))
    referee = machine.referee()
    referee.contenders.prepare_spare(machine.setting())
    while referee.contenders.spares[-1].state is not State.STARTING or len(referee.contenders.spares) < 2:
        machine.poll(0.1)
        referee.contenders.tend_spares()
    second = referee.contenders.spares[-1]
    referee.judge(machine.run(rounds=6))
    assert stopped[-6:] == [True] * 6
    assert second in referee.contenders.spares
    assert not second.processes.paused


@pytest.mark.parametrize(
    ("order", "after", "phase"), [(Kind.LOAD, 0, "prepare"), (Kind.GO, 6, "time"), (Kind.CHOOSE, 10, "time")]
)
def test_failing_reference_is_harness_error_and_gets_replaced(
    order: Kind, after: int, phase: str, told: Callable[[], list[Any]]
) -> None:
    machine = MadeMachine()
    machine.faults["reference"] = [[Fault(order, Kind.RAISED, after=after, text="out of order", times=1)]]
    referee = machine.referee()
    judged = judged_by(referee, machine, told)
    assert judged.verdict is Verdict.HARNESS_ERROR
    assert (judged.failure.phase, "out of order" in judged.failure.text) == (phase, True)
    assert judged.speedup is None
    assert judged_by(referee, machine, told).verdict is Verdict.PASS
    assert len(machine.started["reference"]) == 4


@pytest.mark.parametrize("order", [Kind.MEASURE_BASELINE, Kind.MAKE_ARENAS, Kind.DRAW, Kind.COMPARE, Kind.CHECK_POISON])
def test_trusted_rank_that_fails_is_harness_error(order: Kind, told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine()
    text = 'Traceback (most recent call last):\n  File "oracle.py", line 3\nValueError: no room\nTry less.\n'
    machine.oracle.faults.append(Fault(order, Kind.BROKEN, text=text, times=1))
    referee = machine.referee()
    judged = judged_by(referee, machine, told)
    assert judged.verdict is Verdict.HARNESS_ERROR
    assert "ValueError: no room" in judged.detail
    assert 'File "oracle.py", line 3' in judged.failure.text
    assert judged_by(referee, machine, told).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("role", "times", "others", "verdict"),
    [
        ("oracle", 1, False, Verdict.OUT_OF_MEMORY),
        ("reference", 1, False, Verdict.OUT_OF_MEMORY),
        ("reference", 1, True, Verdict.HARNESS_ERROR),
        ("reference", 9, False, Verdict.HARNESS_ERROR),
    ],
)
def test_only_kernel_that_took_memory_is_blamed(
    role: str,
    times: int,
    others: bool,
    verdict: Verdict,
    told: Callable[[], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, text = MadeMachine(), "OutOfMemoryError: CUDA out of memory"
    monkeypatch.setattr(MadeCpu, "used_by_others", lambda *_: others)
    if role == "oracle":
        machine.oracle.faults.append(Fault(Kind.COMPARE, Kind.BROKEN, text=text, times=times))
    else:
        machine.faults[role] = [[Fault(Kind.LOAD, Kind.RAISED, text=text)] for _ in range(times)]
    referee = machine.referee()
    judged = judged_by(referee, machine, told)
    assert (judged.verdict, "beside this kernel's memory" in judged.detail) == (
        verdict,
        verdict is Verdict.OUT_OF_MEMORY,
    )
    assert times > 1 or judged_by(referee, machine, told).verdict is Verdict.PASS


@pytest.mark.parametrize("role", ["spare", "reference"])
def test_worlds_that_kernel_left_no_memory_are_replaced(role: str, told: Callable[[], list[Any]]) -> None:
    text, greedy = "OutOfMemoryError: CUDA out of memory", Fault(Kind.GO, Kind.NO_MEMORY, text="out of memory", times=1)
    machine = MadeMachine("made-gpu", MadeKernel(faults=[greedy]))
    failing = [Fault(Kind.READY, Kind.RAISED, text=text)]
    machine.faults = {"spare": [[], failing]} if role == "spare" else {"reference": [failing] * 2}
    referee = machine.referee()
    verdicts = [judged_by(referee, machine, told).verdict for _ in range(2)]
    assert verdicts == [Verdict.OUT_OF_MEMORY, Verdict.PASS]


@pytest.mark.parametrize(
    "changes", [{"dtype": "int64"}, {"device": "abacus"}, {"problem_dir": "/nowhere"}, {"world": 0}]
)
def test_a_setting_that_cannot_be_run_is_refused(changes: dict[str, Any], told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine()
    referee = machine.referee()
    run = machine.run(rounds=6)
    referee.judge(msgspec.structs.replace(run, setting=machine.setting(**changes)))
    assert len([event for event in told() if isinstance(event, events.Refused)]) == 1
    assert machine.started["baseline"] == []


# --- cancelling ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "order", "after", "phase"),
    [
        ("baseline", Kind.OPEN, 0, "prepare"),
        ("baseline", Kind.MAKE_ARENAS, 0, "load"),
        ("reference", Kind.LOAD, 0, "prepare"),
        ("baseline", Kind.MAKE_ARENAS, 1, "prepare"),
        ("baseline", Kind.COMPARE, 0, "check"),
        ("baseline", Kind.DRAW, 4, "time"),
        ("reference", Kind.FINISH, 2, "time"),
        ("spare", Kind.ARM, 0, "check"),
        ("spare", Kind.ARM, 20, "time"),
    ],
)
def test_run_is_cancelled_at_any_wait(
    role: str, order: Kind, after: int, phase: str, told: Callable[[], list[Any]]
) -> None:
    machine = MadeMachine("made-gpu")
    referee = machine.referee()
    start = machine.start

    def starting(spec: Any) -> Any:
        world = start(spec)
        if machine.started[role][:1] == [world]:
            machine.at_order(world, order, lambda: referee.pipe.hear(events.Cancel(run_id="1")), after)
        return world

    referee.starter.start_processes = starting
    referee.judge(machine.run(rounds=12))
    found = told()
    ends = [event for event in found if isinstance(event, events.Cancelled)]
    assert [event.phase for event in ends] == [phase]
    kept = ends[0].result
    assert (kept is not None) == any(isinstance(event, events.Checked) for event in found)
    if kept is not None:
        assert (kept.verdict, kept.speedup, kept.rounds) == (Verdict.PASS, None, 0)
    assert not any(isinstance(event, events.Finished) for event in found)
    assert judged_by(referee, machine, told, "2").verdict is Verdict.PASS


@pytest.mark.parametrize("role", ["reference", "spare"])
def test_run_is_cancelled_behind_closed_gate(role: str, told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine("made-gpu")
    referee = machine.referee()
    referee.warm(machine.setting())

    def cancel() -> None:
        if any(world.state is State.QUEUED for world in machine.started[role]):
            referee.pipe.hear(events.Cancel(run_id="1"))

    machine.at_order(machine.started["baseline"][0], Kind.REVEAL, cancel, always=True)
    referee.judge(machine.run(rounds=12))
    assert [event.phase for event in told() if isinstance(event, events.Cancelled)] == ["time"]
    assert judged_by(referee, machine, told, "2").verdict is Verdict.PASS


def test_run_waiting_for_lease_is_cancelled_unstarted(told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine()
    referee = machine.referee()
    referee.pipe.hear(machine.run())
    referee.pipe.hear(events.Cancel(run_id="2"))
    assert len(referee.pipe.commands) == 1
    referee.pipe.hear(events.Cancel(run_id="1"))
    assert not referee.pipe.commands
    assert [event.phase for event in told() if isinstance(event, events.Cancelled)] == ["waiting"]
    referee.pipe.begin_run("3")
    for run_id in "32":
        referee.pipe.hear(events.Cancel(run_id=run_id))
    assert referee.pipe.cancelled


def test_no_world_starts_after_engine_hangs_up() -> None:
    referee = (machine := MadeMachine()).referee()
    referee.pipe.hung_up = True
    referee.judge(machine.run(rounds=6))
    assert len(machine.started["spare"]) == 1


def test_words_of_kernel_are_no_lost_rank() -> None:
    assert not main.lost_a_rank(run_result(Verdict.WRONG_RESULT, detail="expected SIGKILL"))
    assert main.lost_a_rank(run_result(Verdict.CRASH))


# --- measuring on after the verdict ---------------------------------------------------------------------------


def loud(device: str = "made-gpu") -> MadeMachine:
    """A machine on which the speed of identical code is not known precisely within half a second."""
    kernels = [MadeKernel(noisy(100.0, 0.1, seed), noisy(80.0, 0.05, seed + 9)) for seed in (1, 2)]
    return MadeMachine(device, kernels[0], reference=kernels[1])


def judged_in(found: list[Any]) -> list[events.Judged]:
    return [event for event in found if isinstance(event, events.Judged)]


def test_longer_measuring_sharpens_results_until_its_end(told: Callable[[], list[Any]]) -> None:
    machine = loud()
    machine.referee().judge(machine.run(budget_s=0.5, live_s=6.0))
    found = told()
    judged = judged_in(found)
    assert len(judged) >= 3
    assert result(found) == judged[-1].result
    assert any(isinstance(event, events.WorldOffsets) for event in found)
    first, last = (each.result.speedup.call for each in (judged[0], judged[-1]))
    assert half_width(last) < 0.8 * half_width(first)
    assert judged[-1].result.rounds > judged[0].result.rounds


def test_cancel_ends_longer_measuring_and_keeps_check(told: Callable[[], list[Any]]) -> None:
    machine = loud()
    referee = machine.referee()
    machine.clock.after(6.0, lambda: referee.pipe.hear(events.Cancel(run_id="1")))
    referee.judge(machine.run(budget_s=0.5, live_s=60.0))
    found = told()
    assert machine.clock.monotonic() < 9.0
    assert result(found) == judged_in(found)[-1].result
    assert judged_by(referee, machine, told, "2").verdict is Verdict.PASS


def test_the_next_command_ends_measuring_on(told: Callable[[], list[Any]]) -> None:
    machine = loud()
    referee = machine.referee()
    machine.clock.after(6.0, lambda: referee.pipe.hear(events.Warm(setting=machine.setting())))
    referee.judge(machine.run(budget_s=0.5, live_s=60.0))
    assert machine.clock.monotonic() < 8.0
    assert result(told()).verdict is Verdict.PASS


def test_kernel_wrong_in_longer_measuring_has_failed(told: Callable[[], list[Any]]) -> None:
    machine = loud()

    def fail() -> None:
        machine.oracle.finding = lambda rank, order, slot: wrong()

    machine.clock.after(6.0, fail)
    machine.referee().judge(machine.run(budget_s=0.5, live_s=60.0))
    found = told()
    assert judged_in(found)[0].result.verdict is Verdict.PASS
    assert result(found).verdict is Verdict.WRONG_RESULT
    assert not any(isinstance(event, events.WorldOffsets) for event in found)  # it may have disturbed the baseline


# --- the lease of the devices --------------------------------------------------------------------------------


@pytest.fixture
def contended(gpu: MadeGpu, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Lease:
    """The lease of the simulated GPU, as another arena has it: a test takes it to make a run wait."""
    folder = tmp_path
    monkeypatch.setattr(main, "Lease", partial(Lease, folder=folder))
    monkeypatch.setattr(gpu, "lease_names", lambda world: ["made"])
    return Lease(["made"], folder)


def test_run_waits_for_timing_of_other_arenas(contended: Lease, told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine("made-gpu")
    assert contended.take()
    referee = machine.referee()
    machine.clock.after(3.0, contended.close)
    referee.judge(machine.run(rounds=6))
    found = told()
    assert result(found).verdict is Verdict.PASS
    assert ["another run is timing" in event.text for event in found if isinstance(event, events.Log)] == [True]
    assert machine.clock.monotonic() > 3.0


def test_kernel_is_stopped_while_measuring_on_waits(contended: Lease, told: Callable[[], list[Any]]) -> None:
    machine = loud()
    referee = machine.referee()
    emit, stopped = referee.emit, []

    def take(event: Any) -> None:
        emit(event)
        if isinstance(event, events.Judged) and not stopped:
            assert contended.take()
            machine.clock.after(1.0, lambda: stopped.append(referee.contenders.contender.processes.paused))
            machine.clock.after(2.0, contended.close)

    referee.emit = take
    referee.judge(machine.run(budget_s=0.5, live_s=6.0))
    assert (stopped, len(judged_in(told())) > 1) == ([True], True)


@pytest.mark.parametrize(("urgency", "seconds"), [(Urgency.PERSON, 1), (Urgency.SWEEP, 15)])
def test_lease_that_is_never_free_is_harness_error(
    contended: Lease, told: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch, urgency: Urgency, seconds: int
) -> None:
    monkeypatch.setattr(main.deadlines, "LEASE", 1.0)
    machine = MadeMachine("made-gpu")
    assert contended.take()
    machine.referee().judge(msgspec.structs.replace(machine.run(rounds=6), urgency=urgency))
    assert f"waited {seconds} s for another arena" in result(told()).detail
    contended.close()


def test_a_sweep_stops_before_people_time(contended: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, order = MadeMachine("made-gpu"), []
    referee = machine.referee()
    with referee.leased(machine.setting(), Urgency.SWEEP):
        monkeypatch.setattr(referee.lease, "is_wanted", lambda: True)
        monkeypatch.setattr(referee.lease, "give_way", lambda: order.append(contended.take()))
        machine.clock.after(3.0, contended.close)
        referee.lease._unlock()
        waited = referee.give_way(machine.setting(), lambda: order.append("stopped"))
    assert order == ["stopped", True]
    assert waited == pytest.approx(3.0, abs=1.0)  # which is none of its own


# --- other commands ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_run_replaces_preparation_while_worlds_start(dtype: str, told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine("made-gpu")
    referee, run = machine.referee(), machine.run(rounds=6)
    run = msgspec.structs.replace(run, setting=machine.setting(dtype=dtype))
    machine.clock.after(START_SECONDS + OPEN_SECONDS + 0.2, lambda: referee.pipe.hear(run))
    referee.warm(machine.setting())
    assert {world.state for world in machine.started["reference"]} == {State.STARTING}
    referee.judge(referee.pipe.commands.popleft())
    assert result(told()).verdict is Verdict.PASS
    assert [len(machine.started[role]) for role in ("baseline", "reference")] == [1, 4]


def test_failed_warming_is_no_event_before_the_run(told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine()
    machine.oracle.faults.append(Fault(Kind.MEASURE_BASELINE, Kind.BROKEN, text="no", times=1))
    referee = machine.referee()
    referee.warm(machine.setting(dtype="int64"))
    referee.warm(machine.setting())
    assert referee.oracle.world is None
    assert {type(event) for event in told()} == {events.WorldChanged}


def test_calibration_has_peaks_of_slowest_rank_alone(told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine()
    referee = machine.referee()
    referee.warm(machine.setting())
    ranks = iter([{"local": 3e9, "start_us": 5.0}, {"local": 2e9, "start_us": 4.0}])
    machine.oracle.peaks_of = lambda rank: next(ranks)
    referee.calibrate(machine.setting())
    (calibrated,) = [event for event in told() if isinstance(event, events.Calibrated)]
    assert calibrated.peaks == {"local": 2e9, "start_us": 5.0}
    assert (referee.contenders.spares, referee.references.worlds) == ([], [])


def test_a_calibration_that_fails_says_so(told: Callable[[], list[Any]]) -> None:
    machine = MadeMachine()
    machine.oracle.faults.append(Fault(Kind.MEASURE_PEAKS, Kind.BROKEN, text="no"))
    referee: Referee = machine.referee()
    referee.calibrate(machine.setting())
    (fatal,) = [event for event in told() if isinstance(event, events.Fatal)]
    assert fatal.message.startswith("calibration failed: rank 0: BROKEN no")
    assert referee.oracle.world is None


def test_transfers_are_of_the_pairs_of_all_ranks(
    told: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = MadeMachine()
    referee = machine.referee()
    pairs = [PairTimes((0, 1), {"SM stores": [2.0]}), PairTimes((1, 2), {"SM stores": [3.0]})]
    machine.oracle.transfers_of = lambda rank, backends: Transfers([2048], [pairs[1 - rank]], {"TMA": "too old"})
    monkeypatch.setattr(referee.pipe, "open", lambda: None)
    machine.clock.after(60.0, lambda: setattr(referee.pipe, "hung_up", True))
    referee.pipe.hear(events.TimeTransfers(machine.setting()))
    referee.serve()
    (timed,) = [event for event in told() if isinstance(event, events.TransfersTimed)]
    assert timed.transfers == Transfers([2048], pairs, {"TMA": "too old"})
    assert timed.transfers.us("SM stores") == [3.0]
    assert (referee.contenders.spares, referee.references.worlds) == ([], [])


def test_other_libraries_add_ways_and_isolated_faults(
    monkeypatch: pytest.MonkeyPatch, gpu: MadeGpu, told: Callable[[], list[Any]]
) -> None:
    monkeypatch.setattr(gpu, "on_gpus", True)

    def measured(rank: int, backends: bool) -> Transfers:
        us = {"NVSHMEM": [3.0]} if backends else {"TMA": [2.0]}
        return Transfers([2048], [PairTimes((0, 1), us)][rank:], {"NCCL device": "too old"} if backends else {})

    broken = Fault(Kind.MEASURE_TRANSFERS, Kind.BROKEN, text="Traceback:\nRuntimeError: no", after=1)
    for fault, ways, absent in (
        ([], ["TMA", "NVSHMEM"], {"NCCL device": "too old"}),
        ([broken], ["TMA"], {OPTIONAL_WAYS: "RuntimeError: no"}),
    ):
        machine = MadeMachine("made-gpu")
        machine.oracle.transfers_of = measured
        machine.oracle.faults += fault
        machine.referee().time_transfers(machine.setting())
        (timed,) = [event for event in told() if isinstance(event, events.TransfersTimed)]
        assert (timed.transfers.ways, timed.transfers.absent) == (ways, absent)


@pytest.mark.parametrize("measured", ["calibrate", "time_transfers"])
def test_measurement_waits_for_timing_of_other_arenas(
    contended: Lease, measured: str, told: Callable[[], list[Any]]
) -> None:
    machine = MadeMachine("made-gpu")
    assert contended.take()
    machine.clock.after(3.0, contended.close)
    getattr(machine.referee(), measured)(machine.setting())
    found = [event for event in told() if not isinstance(event, events.WorldChanged | events.Log)]
    assert [type(event) for event in found] in (
        [events.Waiting, events.Calibrated],
        [events.Waiting, events.TransfersTimed],
    )
    assert found[0].run_id == ""
    assert machine.clock.monotonic() > 3.0


def test_closing_ends_every_world_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, all_end = MadeMachine(), threading.Barrier(6, timeout=PATIENCE_S)
    monkeypatch.setattr(MadeProcesses, "close", lambda self, end=MadeProcesses.close: all_end.wait() >= 0 and end(self))
    referee, setting = machine.referee(), machine.setting()
    referee.warm(setting)
    referee.contenders.take_rival(setting)
    referee.contenders.take(setting)
    referee.contenders.prepare_spare(setting)
    referee.close()
    started = [world for worlds in machine.started.values() for world in worlds]
    assert len(started) == 6
    assert all(world.state is State.DEAD and machine.processes(world).closed for world in started)


# --- Priorities that a kernel takes or leaves ----------------------------------------------------------------


USUAL = Share("/autogroup-7 nice 10", 3, 0)
HELPER = 77


def rounds_where(share_of: Callable[[Rounds, int], Share], **kernel: object) -> tuple[Rounds, MadeCpu]:
    """Returns rounds on a machine where share_of(rounds, pid) is each process's share of the cores."""
    machine = MadeMachine(kernel=MadeKernel(**kernel))  # type: ignore[arg-type]
    rounds = machine.rounds(machine.run(rounds=12))
    kind = KINDS["made-cpu"]
    assert isinstance(kind, MadeCpu)
    kind.share_of = lambda pid: share_of(rounds, pid)
    return rounds, kind


@pytest.mark.parametrize(
    "changed", [USUAL._replace(session="/autogroup-8 nice 0"), USUAL._replace(policy=0), USUAL._replace(nice=-5)]
)
def test_rank_whose_priority_changes_during_timing_disturbs_baseline(changed: Share) -> None:
    rounds, _ = rounds_where(
        lambda rounds, pid: (
            changed
            if rounds.turns.rounds and pid == rounds.turns.contender_side.worlds[0].processes.rank_pids[1]
            else USUAL
        )
    )
    with pytest.raises(Failed) as failed:
        rounds.measure()
    assert failed.value.verdict is Verdict.BASELINE_DISTURBED
    assert failed.value.side == CONTENDER
    assert "changed the priority of its process" in failed.value.failure.message


def test_unchanged_priorities_and_ended_processes_are_no_fault() -> None:
    other = Share("/autogroup-8 nice 19")
    rounds, kind = rounds_where(
        lambda rounds, pid: USUAL if pid != HELPER else Share() if rounds.turns.rounds else other, helpers=[HELPER]
    )
    rounds.measure()
    assert rounds.turns.rounds == 12
    assert kind.settled.count(HELPER) == 1


def test_helper_in_session_of_world_stays_unchanged() -> None:
    rounds, kind = rounds_where(lambda rounds, pid: USUAL, helpers=[HELPER])
    rounds.measure()
    assert HELPER not in kind.settled


def test_ranks_with_own_sessions_outweigh_the_baseline() -> None:
    rounds, _ = rounds_where(lambda rounds, pid: Share(f"/autogroup-{pid} nice 10"))
    with pytest.raises(Failed) as failed:
        rounds.measure()
    assert failed.value.verdict is Verdict.BASELINE_DISTURBED
    assert rounds.turns.rounds == 0


@pytest.mark.parametrize("many", [MOST_SESSIONS, MOST_SESSIONS + 1])
def test_few_sessions_of_helpers_get_lowest_priority(many: int) -> None:
    helpers: list[int] = []

    def share_of(rounds: Rounds, pid: int) -> Share:
        helpers[:] = range(HELPER, HELPER + min(rounds.turns.rounds, many))
        return Share(f"/autogroup-{pid} nice 0") if pid in helpers else USUAL

    rounds, kind = rounds_where(share_of, helpers=helpers)
    if many > MOST_SESSIONS:
        with pytest.raises(Failed) as failed:
            rounds.measure()
        assert "sessions during timing" in failed.value.failure.message
    else:
        rounds.measure()
    assert set(range(HELPER, HELPER + many)) <= set(kind.settled)
