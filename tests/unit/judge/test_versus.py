"""Runs between two kernels on simulated worlds: both are checked, and the one at fault is blamed."""

from typing import Any

import pytest
from made_kernels import Fault, MadeKernel, noisy
from made_machine import MadeGpu, MadeMachine

from sandbox.protocol.events import Checked, Contender, PhaseStarted, RankChecked, Result
from sandbox.protocol.frames import REUSES, Kind
from sandbox.protocol.verdict import Verdict
from sandbox.referee.correctness import CorrectnessCheck
from sandbox.referee.evaluation import Versus
from sandbox.timing.probes import Probes
from sandbox.timing.roofline import Peaks
from sandbox.timing.rounds import Rounds
from sandbox.worlds.exchange import Exchange
from sandbox.worlds.failures import HarnessFailed

SIDES = [("kernel", 0), ("rival", 1)]


def fought(machine: MadeMachine, rounds: int = 6) -> Result:
    pool, setting = machine.pool(), machine.setting()
    run = machine.run(rounds=rounds, versus=Contender("rival.py", "# rival.py\n"))
    stage = pool.oracle.prepare(setting)
    theirs, mine = pool.contenders.take_rival(setting), pool.contenders.take(setting)
    versus = Versus(
        run,
        stage,
        (mine, theirs),
        machine.await_all,
        machine.events.append,
        Peaks(device=machine.device),
        machine.clock,
    )
    if rounds:
        versus.evaluation.open_baseline = lambda: machine.baseline_side(pool, stage, 2)
    return versus.judge()


def verdicts(result: Result) -> tuple[Verdict, Verdict]:
    return result.verdict, result.rival.verdict


@pytest.mark.parametrize("device", ["made-cpu", "made-gpu"])
def test_quicker_of_two_right_kernels_is_faster(device: str) -> None:
    quick, slow = MadeKernel(noisy(50.0), noisy(30.0)), MadeKernel(noisy(100.0), noisy(90.0))
    won, lost = (fought(MadeMachine(device, *kernels), rounds=16) for kernels in ((quick, slow), (slow, quick)))
    assert verdicts(won) == verdicts(lost) == (Verdict.PASS, Verdict.PASS)
    assert (won.outcome, lost.outcome) == ("faster", "slower")
    assert won.speedup.call.median == pytest.approx(98 / 48)
    assert lost.speedup.call.median == pytest.approx(48 / 98)
    assert (won.speedup.device is None) == (device == "made-cpu")


def test_phases_of_rival_are_not_shown_as_contenders() -> None:
    machine = MadeMachine()
    fought(machine)
    assert [event.phase for event in machine.of(PhaseStarted)] == ["load", "check", "load", "check", "time"]
    assert len(machine.of(Checked)) == 1
    assert len(machine.of(RankChecked)) == 2


def test_without_rounds_both_are_checked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, judge, stopped = MadeMachine(), CorrectnessCheck.judge, []

    def noted(check: CorrectnessCheck) -> Any:
        stopped.append([world.processes.paused for world in machine.started["spare"]])
        return judge(check)

    monkeypatch.setattr(CorrectnessCheck, "judge", noted)
    result = fought(machine, rounds=0)
    assert verdicts(result) == (Verdict.PASS, Verdict.PASS)
    assert result.speedup is None
    assert stopped == [[False, False], [False, True]]  # the rival's world starts first


@pytest.mark.parametrize(("name", "side"), SIDES)
@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (Fault(Kind.LOAD, Kind.SYNTAX, text="bad"), Verdict.COMPILE_ERROR),
        (Fault(Kind.GO), Verdict.TIMEOUT),
        (Fault(Kind.GO, status=11, after=30), Verdict.CRASH),
        (Fault(Kind.FINISH, Kind.DEVICE, after=2), Verdict.DEVICE_ERROR),
    ],
)
def test_a_kernel_that_fails_fails_alone(name: str, side: int, fault: Fault, verdict: Verdict) -> None:
    made: dict[str, Any] = {name: MadeKernel(faults=[fault])}
    result = fought(MadeMachine("made-gpu", **made))
    found = verdicts(result)
    assert (found[side], found[1 - side]) == (verdict, Verdict.PASS)
    assert ((result.failure, result.rival.failure)[side].phase == "time") == bool(fault.after)
    assert (result.speedup, result.baseline_us, result.outcome, result.told) == (None, None, "", "")


@pytest.mark.parametrize("after", [0, 12])
@pytest.mark.parametrize(("name", "side"), SIDES)
def test_lacking_gpu_memory_blames_neither(name: str, side: int, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MadeGpu, "on_gpus", True)
    made: dict[str, Any] = {name: MadeKernel(faults=[Fault(Kind.GO, Kind.NO_MEMORY, after=after)])}
    with pytest.raises(HarnessFailed, match="no room for both"):
        fought(MadeMachine("made-gpu", **made))
    assert verdicts(fought(MadeMachine(**made)))[side] is Verdict.OUT_OF_MEMORY


def test_no_op_results_are_gone_before_output_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    def noted(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            happened.append(name)
            return real(self, *arguments, **options)

        monkeypatch.setattr(owner, name, call)

    noted(Rounds, "noop_batches")
    noted(Exchange, "discard_outputs")
    noted(Probes, "run")
    made = {name: MadeKernel(memory_reports=[REUSES]) for name, _ in SIDES}
    assert verdicts(fought(MadeMachine(**made), rounds=24)) == (Verdict.PASS, Verdict.PASS)
    assert "run" in happened
    for at, name in enumerate(happened):
        if name == "noop_batches" and "run" in happened[at:]:
            assert "discard_outputs" in happened[at : at + happened[at:].index("run")]
