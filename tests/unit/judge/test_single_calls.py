"""Single calls as a second measurement, on simulated worlds: which speedups they confirm and which they contradict."""

import dataclasses
import math
import random

import numpy as np
import pytest
from made_kernels import BatchTime, MadeKernel, noisy, right
from made_machine import MadeMachine

from sandbox.machine import processes
from sandbox.protocol.events import Interval
from sandbox.protocol.messages import CompareOutputs, OutputFinding
from sandbox.timing.interval import Pair, outcome
from sandbox.timing.rounds import Rounds
from sandbox.timing.single_calls import LEAST_SAVED, LEAST_SINGLE_PAIRS, MOST_SINGLE_PAIRS, SINGLE_PAIRS, SingleCalls

START_US = 300.0
BASELINE = MadeKernel(noisy(100.0, 0.02), start_us=START_US, noop_us=lambda calls: START_US)


def ahead(first_us: float, later_us: float) -> BatchTime:
    """Returns times of batches whose first call does the work of all calls."""
    return lambda calls: first_us + later_us * (calls - 1)


def measured(kernel: MadeKernel, rival: MadeKernel | None = None) -> Rounds:
    machine = MadeMachine(kernel=kernel, rival=rival, reference=BASELINE)
    rounds = machine.rounds(machine.run(rounds=12), rival="rival.py" if rival else "")
    rounds.measure()
    return rounds


def kernel(call_us: BatchTime) -> MadeKernel:
    return MadeKernel(call_us, start_us=START_US, noop_us=BASELINE.noop_us)


@pytest.mark.parametrize("us", [90.0, 80.0, 70.0, 60.0, 25.0, 10.0])
def test_kernel_quick_in_single_calls_keeps_speedup(us: float) -> None:
    rounds = measured(kernel(noisy(us, 0.02)))
    assert rounds.unconfirmed is None
    assert rounds.call.speed.median == pytest.approx(100.0 / us, rel=0.15)
    assert outcome(rounds.call.speed) == "faster"
    assert len(rounds.single_calls.pairs) >= LEAST_SINGLE_PAIRS


def test_a_clear_lead_is_confirmed_by_few_pairs() -> None:
    assert len(measured(kernel(noisy(10.0, 0.02))).single_calls.pairs) == LEAST_SINGLE_PAIRS
    assert len(measured(kernel(paced(70.0))).single_calls.pairs) >= SINGLE_PAIRS


def test_kernel_working_ahead_gets_speedup_of_single_calls() -> None:
    rounds = measured(kernel(ahead(75.0, 1.0)))
    assert rounds.unconfirmed is not None
    assert rounds.call.speed.low < 1.33 < rounds.call.speed.high


def test_single_calls_waiting_for_cores_claim_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = dataclasses.replace(kernel(paced(20.0)), without_core=0.1)
    machine = MadeMachine(kernel=waiting, reference=BASELINE)
    machine.outside_share = 0.9
    monkeypatch.setattr(processes, "outside_seconds", machine.outside)
    rounds = machine.rounds(machine.run(rounds=60))
    rounds.measure()
    assert rounds.unconfirmed is not None
    assert rounds.call.speed is None
    assert "a single call waits for one" in rounds.call.why


@pytest.mark.parametrize("slowed", [True, False])
def test_baseline_quicker_alone_tells_of_other_work(slowed: bool) -> None:
    reference = MadeKernel(lambda calls: calls * (1000.0 if slowed and calls > 1 else 100.0), start_us=START_US)
    machine = MadeMachine(kernel=kernel(ahead(75.0, 1.0)), reference=reference)
    rounds = machine.rounds(machine.run(rounds=12))
    rounds.measure()
    alone = rounds.unconfirmed.alone_us
    assert (alone is not None) == slowed
    assert alone is None or alone < 500.0 < rounds.unconfirmed.baseline_us


def paced(us: float) -> BatchTime:
    """Returns times of a kernel that works ahead, then waits: `us` a call in batches, 100 us in single calls."""
    plain, ahead_us = noisy(100.0, 0.02), noisy(us, 0.02)
    return lambda calls: plain(calls) if calls == 1 else ahead_us(calls)


@pytest.mark.parametrize("us", [80.0, 70.0, 60.0, 40.0])
def test_lead_missing_in_single_calls_is_not_faster(us: float) -> None:
    rounds = measured(kernel(paced(us)))
    assert rounds.unconfirmed.speedup.median == pytest.approx(100.0 / us, rel=0.1)
    assert rounds.call.speed is not None
    assert outcome(rounds.call.speed) != "faster"


LAUNCH_US = 400.0
"""Time to launch a call. In a batch the device's work hides it."""


def behind_the_gate(call_us: BatchTime, gated_us: BatchTime) -> Rounds:
    """Measures a kernel on a GPU whose baseline takes 1000 us a call on the device."""
    reference = MadeKernel(noisy(1000.0, 0.01), noisy(1000.0, 0.01), start_us=START_US, noop_us=BASELINE.noop_us)
    reference.noop_gated_us = lambda calls: START_US
    made = MadeKernel(call_us, gated_us, start_us=START_US, noop_us=BASELINE.noop_us)
    made.noop_gated_us = reference.noop_gated_us
    machine = MadeMachine("made-gpu", made, reference=reference)
    machine.probing = True
    rounds = machine.rounds(machine.run(rounds=12))
    rounds.measure()
    return rounds


def test_launch_awaited_by_single_calls_keeps_lead() -> None:
    launched = noisy(700.0, 0.01)
    rounds = behind_the_gate(lambda calls: launched(calls) + LAUNCH_US, noisy(700.0, 0.01))
    assert rounds.single_calls.contradict(Interval(1.42, 1.40, 1.44), 1000.0, proven=True)
    assert rounds.unconfirmed is None
    for clock in (rounds.call, rounds.device):
        assert clock.speed is not None
        assert outcome(clock.speed) == "faster"


@pytest.mark.parametrize(("alone_us", "stands"), [(1000.0, False), (700.0, True)])
def test_lead_by_device_time_alone_needs_single_calls(alone_us: float, stands: bool) -> None:
    batch, alone = noisy(700.0, 0.01), noisy(alone_us, 0.01)
    rounds = behind_the_gate(noisy(1000.0, 0.01), lambda calls: alone(calls) if calls == 1 else batch(calls))
    assert rounds.unconfirmed is None
    assert rounds.behind_gate.runs == (rounds.device.speed is not None) == stands


def test_first_call_batch_is_not_faster_behind_gate() -> None:
    rounds = behind_the_gate(ahead(1100.0, 30.0), ahead(1100.0, 30.0))
    assert rounds.unconfirmed is not None
    assert rounds.call.speed is not None
    assert outcome(rounds.call.speed) != "faster"
    assert not rounds.behind_gate.runs


def single_calls(mine_us: float, spread_us: float) -> SingleCalls:
    """Returns pairs of single calls whose baseline takes 100 us. A start takes 300 us plus exponential noise."""
    found = SingleCalls(measured(BASELINE).turns)
    chance = random.Random(1)

    def start_us() -> float:
        return START_US + chance.expovariate(1 / spread_us)

    found.pairs = [Pair(0, 100.0 + start_us(), mine_us + start_us(), True) for _ in range(MOST_SINGLE_PAIRS)]
    return found


LEAD = Interval(1.4, 1.3, 1.5)


@pytest.mark.parametrize(("mine_us", "waited", "keeps"), [(20.0, 0.3, True), (20.0, 0.0, False), (100.0, 0.3, False)])
def test_undisturbed_single_calls_confirm_beside_other_programs(mine_us: float, waited: float, keeps: bool) -> None:
    found = single_calls(mine_us, 5.0)
    found.turns.waited = (waited, waited)
    chance = random.Random(2)
    waits = [(chance.choice([0.0, 3000.0]), chance.choice([0.0] + 6 * [4000.0])) for _ in found.pairs]
    found.pairs = [
        Pair(0, pair.baseline_us + theirs, pair.contender_us + own, True)
        for pair, (theirs, own) in zip(found.pairs, waits, strict=True)
    ]
    assert found.contradict(Interval(5.0, 3.0, 7.0), 100.0, True) != keeps
    assert found.confirm(Interval(5.0, 3.0, 7.0), 100.0) == keeps


def test_more_pairs_are_made_until_single_calls_decide() -> None:
    rounds = measured(kernel(noisy(97.0, 0.02)))
    makes = rounds.single_calls
    makes.pairs.clear()
    makes.confirm = lambda *lead: False  # type: ignore[method-assign]
    makes.decide = lambda *lead: len(makes.pairs) > SINGLE_PAIRS  # type: ignore[method-assign]
    makes.measure(rounds.pairs, rounds.seconds, (LEAD, 100.0, True))
    assert SINGLE_PAIRS < len(makes.pairs) <= 2 * SINGLE_PAIRS
    makes.decide = lambda *lead: False  # type: ignore[method-assign]
    makes.measure(rounds.pairs, rounds.seconds, (LEAD, 100.0, True))
    assert len(makes.pairs) == MOST_SINGLE_PAIRS


def test_pairs_end_where_noise_would_hide_lead() -> None:
    found = single_calls(98.0, 1000.0)
    assert (found.decide(LEAD, 100.0, True), found.decide(LEAD, 100.0, False)) == (True, False)
    found.pairs = [Pair(0, 400.0 + number % 9, 100.0 + 600.0 * (number % 2), True) for number in range(SINGLE_PAIRS)]
    assert not found.decide(LEAD, 100.0, True)  # the leader gains nothing by noise of its own


def test_single_calls_contradict_barely_shown_lead() -> None:
    quiet, loud = single_calls(98.0, 75.0), single_calls(98.0, 85.0)
    assert quiet.contradict(LEAD, 100.0, proven=True)
    assert not loud.decide(LEAD, 100.0, proven=True)
    assert not loud.contradict(LEAD, 100.0, proven=True)


def test_quick_single_calls_alone_contradict_no_lead() -> None:
    found = single_calls(98.0, 60.0)
    found.pairs = [Pair(0, 660.0 if k % 5 < 2 else 700.0, 660.0, True) for k in range(MOST_SINGLE_PAIRS)]
    assert not found.contradict(LEAD, 100.0, proven=True)


def test_unproven_lead_needs_single_calls_that_fit_it() -> None:
    loud = single_calls(98.0, 400.0)
    assert not loud.decide(LEAD, 100.0, proven=False)
    fits = LEAST_SAVED * (100.0 - 100.0 / LEAD.median) < float(np.median(loud.saved_us()))
    assert loud.contradict(LEAD, 100.0, proven=False) is not fits
    assert loud.contradict(Interval(1.7, 1.3, 2.2), 100.0, proven=False)
    assert not single_calls(71.0, 20.0).contradict(LEAD, 100.0, proven=False)


@pytest.mark.parametrize("rival", [paced(75.0), ahead(110.0, 3.0)])
def test_rival_working_ahead_never_wins(rival: BatchTime) -> None:
    rounds = measured(kernel(noisy(100.0, 0.02)), rival=kernel(rival))
    assert rounds.unconfirmed is not None
    assert rounds.call.speed is not None
    assert outcome(rounds.call.speed) != "slower"


def test_even_and_slower_kernels_need_no_witness() -> None:
    for us in (100.0, 180.0):
        rounds = measured(kernel(noisy(us, 0.02)))
        assert rounds.single_calls.pairs == []


def test_outputs_of_every_single_call_are_compared() -> None:
    machine = MadeMachine(kernel=kernel(noisy(20.0)), reference=BASELINE)
    rounds = machine.rounds(machine.run(rounds=12))
    compared: list[int] = []

    def note(rank: int, order: CompareOutputs, slot: int) -> OutputFinding:
        compared.extend([slot] * (rank == 0 and bool(rounds.single_calls.pairs)))
        return right()

    machine.oracle.finding = note
    rounds.measure()
    assert len(compared) >= len(rounds.single_calls.pairs) > 0


def test_interval_of_single_calls_is_finite() -> None:
    interval = measured(kernel(noisy(0.0))).single_calls.speedup(100.0)
    assert 0 < interval.low <= interval.median <= interval.high < math.inf
