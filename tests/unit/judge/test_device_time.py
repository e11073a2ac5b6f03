"""Device time on simulated worlds with a gate: queueing, calls in a batch, the end of a batch, subtracted overhead."""

import os
from functools import partial
from typing import Any

import pytest
from made_kernels import Fault, MadeKernel, noisy, wrong
from made_machine import MadeMachine

from sandbox.machine.devices.kind import HELD
from sandbox.protocol.frames import REUSES, Kind
from sandbox.protocol.messages import ChooseBatch, CompareOutputs, FinishBatch
from sandbox.timing.device_time import BATCH, NOOP_BATCHES, QUEUE_SECONDS
from sandbox.timing.rounds import Rounds
from sandbox.worlds.exchange import REFERENCE, Failed
from sandbox.worlds.failures import Deadline

QUICK = noisy(20.0)
ROUNDS = 12


def measured(machine: MadeMachine, references: int = 2, rival: str = "") -> Rounds:
    rounds = machine.rounds(machine.run(rounds=ROUNDS), references=references, rival=rival)
    rounds.measure()
    return rounds


def made(kernel: MadeKernel | None = None, reference: MadeKernel | None = None) -> MadeMachine:
    return MadeMachine("made-gpu", kernel or MadeKernel(gated_us=QUICK), reference=reference)


def test_gate_shows_devices_time_without_gates_own() -> None:
    # A no-op batch takes 2 us a call in all worlds, so 78 and 18 us remain.
    rounds = measured(made())
    assert rounds.device.medians() == pytest.approx((78.0, 18.0))
    assert rounds.device.speed.median == pytest.approx(78 / 18)
    assert rounds.call.medians() == pytest.approx((98.0, 98.0))
    assert rounds.samples().empty_gate_us == pytest.approx(2.0 * rounds.behind_gate.calls)


@pytest.mark.parametrize(("own", "subtracted"), [(1.0, 1.0), (60.0, 2.0)])
def test_reusing_kernels_own_overhead_counts_where_less(own: float, subtracted: float) -> None:
    rounds = measured(made(MadeKernel(QUICK, QUICK, noisy(own), noop_gated_us=noisy(own), memory_reports=[REUSES])))
    assert rounds.device.medians() == pytest.approx((78.0, 20.0 - subtracted))
    assert rounds.call.medians() == pytest.approx((98.0, 20.0 - subtracted))


@pytest.mark.parametrize(("cores", "apart"), [(8, [2, 3, 6, 7]), (3, [])])
def test_spinning_oracle_ranks_leave_timed_ranks_cores(monkeypatch: Any, cores: int, apart: list[int]) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    machine = made()
    measured(machine)
    # The timed ranks have the cores 0, 1 and 4, 5.
    assert machine.processes(machine.started["baseline"][0]).pins == [(rank, apart) for rank in range(2) if apart]


def test_every_round_has_pairs_behind_the_gate() -> None:
    machine = made()
    rounds = machine.rounds(machine.run(rounds=ROUNDS))
    begun = machine.sides_in_order(rounds, gated=True)
    rounds.confirm = lambda: None  # type: ignore[method-assign]
    rounds.measure()
    first = [pair.baseline_first for pair in rounds.device.raw]
    assert set(first) == {False, True}
    assert begun[-2 * len(first) :: 2] == first
    assert sorted({pair.round for pair in rounds.device.raw}) == list(range(ROUNDS))
    assert {pair.reference for pair in rounds.device.raw} == {0, 1}
    assert len(rounds.device.raw) == rounds.pace.gated_pairs * ROUNDS


def test_first_batches_of_more_calls_do_not_count() -> None:
    slow = {"call_us": noisy(1000.0), "gated_us": QUICK}
    rounds = measured(made(MadeKernel(**slow), MadeKernel(**slow)))
    assert rounds.calls < HELD < rounds.behind_gate.calls
    assert len(rounds.device.raw) == rounds.pace.gated_pairs * ROUNDS - 2  # one of each reference


def test_batch_has_enough_calls_to_last() -> None:
    rounds = measured(made(MadeKernel(gated_us=noisy(900.0)), MadeKernel(gated_us=noisy(900.0))))
    assert abs(rounds.calls - HELD) <= 1  # those of a batch with the gate open, of 100 us each
    assert rounds.behind_gate.calls == max(rounds.calls, int(BATCH / 900e-6) + 1)
    assert {pair.calls for pair in rounds.device.raw} == {rounds.behind_gate.calls}


@pytest.mark.parametrize(("queues", "calls"), [(127, 64), (31, 28), (1, 1)])
@pytest.mark.parametrize("side", ["kernel", "reference"])
def test_queue_that_is_too_short_gets_fewer_calls(queues: int, calls: int, side: str) -> None:
    short = MadeKernel(gated_us=QUICK, queues=queues)
    machine = made(short) if side == "kernel" else made(None, short)
    rounds = measured(machine)
    assert rounds.behind_gate.calls == calls
    assert {pair.calls for pair in rounds.device.raw} == {calls}
    assert rounds.device.speed is not None
    assert not rounds.behind_gate.cannot_queue


def test_other_lengths_of_no_op_batches_are_forgotten() -> None:
    fixed = MadeKernel(gated_us=QUICK, queues=100, noop_gated_us=lambda calls: 300.0)
    rounds = measured(made(fixed, fixed))
    assert rounds.device.noop == {number: [pytest.approx(300.0 / 90)] * NOOP_BATCHES for number in (0, 1)}


@pytest.mark.parametrize(
    ("side", "waits"), [("kernel", {"queues": 0}), ("reference", {"queues": 0}), ("reference", {"queues_noop": False})]
)
def test_batches_waiting_for_device_have_call_time_alone(side: str, waits: dict[str, Any]) -> None:
    waiting = MadeKernel(gated_us=QUICK, **waits)
    rounds = measured(made(waiting) if side == "kernel" else made(None, waiting))
    assert rounds.behind_gate.cannot_queue
    assert not rounds.behind_gate.runs
    assert rounds.device.estimate() is None
    assert rounds.call.speed is not None
    assert rounds.turns.rounds == ROUNDS


def test_unqueued_batch_is_awaited_no_longer_than_needed() -> None:
    machine = made(MadeKernel(gated_us=QUICK, queues=0))
    before = machine.clock.monotonic()
    rounds = machine.rounds(machine.run(rounds=1))
    rounds.measure()
    assert 1 * QUEUE_SECONDS < machine.clock.monotonic() - before < 5 * QUEUE_SECONDS + 2.0


def test_outputs_of_unqueued_batch_are_not_compared() -> None:
    machine = made(MadeKernel(gated_us=QUICK, queues=0))
    rounds = machine.rounds(machine.run(rounds=1))
    contender = machine.ranks(rounds.turns.contender_side.worlds[0])
    trusted = machine.ranks(machine.started["baseline"][0])
    after_finish: list[object] = []
    machine.at_order(
        rounds.turns.contender_side.worlds[0], Kind.FINISH, lambda: after_finish.append(len(trusted.orders))
    )
    rounds.measure()
    assert any(isinstance(order, FinishBatch) for order in contender.orders)
    at = after_finish[0]
    assert isinstance(at, int)
    following = [order for order in trusted.orders[at:] if isinstance(order, CompareOutputs)]
    assert following[0].slots == []


def test_unfinished_open_gate_batch_misses_its_deadline() -> None:
    stuck = MadeKernel(gated_us=QUICK, queues=0, faults=[Fault(Kind.FINISH, ranks=(0, 1))])
    with pytest.raises(Deadline) as late:
        measured(made(stuck))
    assert late.value.ranks == [0, 1]


@pytest.mark.parametrize("trailing_us", [300.0, 10_000.0])
def test_work_that_goes_on_after_the_mark_counts(monkeypatch: pytest.MonkeyPatch, trailing_us: float) -> None:
    # The mark is written after 1 us a call. DONE comes later, in references after 10 us.
    cheat = MadeKernel(gated_us=noisy(1.0), trailing_us=trailing_us)
    machine = made(cheat)
    monkeypatch.setattr(Rounds, "confirm", lambda rounds: None)  # single calls contradict it
    rounds = measured(machine)
    calls = rounds.behind_gate.calls
    _, mine = rounds.device.medians()
    assert mine == pytest.approx((calls + trailing_us - 10) / calls - 2.0)


@pytest.mark.parametrize("busy", [False, True])
def test_late_reading_of_outputs_counts(busy: bool) -> None:
    # Outputs are read 50 us after the end of each batch; where a kernel keeps the copy engines busy, 1 ms after it.
    machine = made()
    rounds = machine.rounds(machine.run(rounds=ROUNDS))
    oracle = machine.ranks(machine.started["baseline"][0])
    for side in rounds.turns.sides:
        slow = busy and side.exchange.side != REFERENCE
        oracles = MadeKernel(start_us=1000.0 if slow else 50.0, gated_us=lambda calls: 0.0)
        for world in side.worlds:
            machine.ranks(world).on_go = partial(setattr, oracle, "kernel", oracles)
    rounds.confirm = lambda: None  # type: ignore[method-assign]
    rounds.measure()
    added = [950.0 / clock.raw[-1].calls if busy else 0.0 for clock in (rounds.call, rounds.device)]
    assert rounds.call.medians() == pytest.approx((98.0, 98.0 + added[0]))
    assert rounds.device.medians() == pytest.approx((78.0, 18.0 + added[1]))


def test_reading_that_an_order_ended_is_not_awaited() -> None:
    machine = made()
    rounds = machine.rounds(machine.run(rounds=1))
    rounds.turns.start()
    exchange = rounds.turns.exchange
    exchange.draw(1, timed=True)
    for ordered, opened in ((False, 1), (True, 1)):
        exchange.reveal(0, 1, reads=True)
        if ordered:
            exchange.look_ahead(0, 0, 1, [0, 0])
        exchange.read_outputs()
        assert exchange.oracle.gate.opened == opened


def test_missing_mark_ends_when_rank_says_so() -> None:
    machine = made(MadeKernel(gated_us=QUICK, marks=False))
    rounds = measured(machine)
    _, mine = rounds.device.medians()
    assert mine is not None
    assert mine * rounds.behind_gate.calls / 1e6 > rounds.turns.limits.batch * 0.9


def test_words_about_the_end_are_no_work() -> None:
    slow_word = 2500.0
    reference = MadeKernel(trailing_us=slow_word)
    rounds = measured(made(MadeKernel(gated_us=QUICK, trailing_us=slow_word), reference))
    assert rounds.device.medians() == pytest.approx((78.0, 18.0))


def test_a_duelists_lesser_overhead_is_its_own() -> None:
    slow, quick = (MadeKernel(noop_gated_us=noisy(us), memory_reports=[REUSES]) for us in (60.0, 1.0))
    rounds = measured(MadeMachine("made-gpu", slow, rival=quick), rival="rival.py")
    assert rounds.device.medians() == pytest.approx((79.0, 78.0))


def test_no_op_batches_behind_gate_run_in_references() -> None:
    machine = made()
    rounds = measured(machine, references=3)
    for world, times in (
        (rounds.turns.baseline_side.worlds[2], NOOP_BATCHES),
        (rounds.turns.contender_side.worlds[0], 0),
    ):
        orders = machine.ranks(world).orders
        assert sum(isinstance(o, ChooseBatch) and o.noop and o.epoch > 0 for o in orders) == times


def test_wrong_iteration_behind_gate_ends_run() -> None:
    machine = made()
    rounds = machine.rounds(machine.run(rounds=ROUNDS))
    finished = machine.ranks(rounds.turns.contender_side.worlds[0]).orders
    honest = machine.oracle.finding

    def finding(rank: int, order: CompareOutputs, slot: int):
        gated = any(isinstance(each, ChooseBatch) and each.epoch and not each.noop for each in finished)
        return wrong() if gated else honest(rank, order, slot)

    machine.oracle.finding = finding
    with pytest.raises(Failed, match="3 of 10 elements wrong"):
        rounds.measure()
    assert rounds.turns.rounds == 0


def test_unsealed_inputs_are_there_before_queueing() -> None:
    machine = made()
    machine.oracle.sealed = False
    rounds = machine.rounds(machine.run(rounds=ROUNDS))
    queued = []
    machine.at_order(
        machine.started["baseline"][0],
        Kind.REVEAL,
        lambda: queued.append([world.state.value for world in rounds.turns.worlds]),
        always=True,
    )
    rounds.measure()
    assert rounds.device.speed is not None
    assert queued
    assert not any("queued" in states for states in queued)


def test_sealed_inputs_come_when_batch_is_queued() -> None:
    machine = made()
    rounds = machine.rounds(machine.run(rounds=ROUNDS))
    states: set[tuple[str, bool]] = set()
    contender = rounds.turns.contender_side.worlds[0]
    machine.at_order(
        machine.started["baseline"][0],
        Kind.REVEAL,
        lambda: states.add((contender.state.value, contender.processes.paused)),
        always=True,
    )
    rounds.measure()
    assert ("queued", True) in states
    assert not any(not paused for _, paused in states)


def test_gates_of_references_serve_next_run_too() -> None:
    machine = made()
    pool, setting = machine.pool(), machine.setting()
    stage = pool.prepare(setting, 2)
    gates = []
    for _ in range(2):
        rounds = machine.rounds_on(pool, stage, 2, machine.run(rounds=2))
        rounds.measure()
        gates.append([world.gate for world in rounds.turns.baseline_side.worlds])
        pool.end_run()
    assert gates[0] == gates[1]
    assert None not in gates[0]


@pytest.mark.parametrize("queues", [0, 40])
def test_kernel_with_newly_waiting_launches_gets_fewer_calls(queues: int) -> None:
    kernel = MadeKernel(gated_us=QUICK)
    machine = made(kernel)
    rounds = machine.rounds(machine.run(rounds=24))

    def shorten() -> None:
        kernel.queues = queues

    machine.at_order(rounds.turns.contender_side.worlds[0], Kind.FINISH, shorten, after=16)
    rounds.measure()
    assert rounds.behind_gate.cannot_queue is (queues == 0)
    assert bool(rounds.device.raw) is rounds.behind_gate.runs is (queues > 0)
    assert rounds.turns.rounds == 24
    if queues:
        assert {pair.calls for pair in rounds.device.raw} == {128, 36}


def test_probes_end_where_launches_begin_to_wait() -> None:
    kernel = MadeKernel(gated_us=QUICK)
    machine = made(kernel)
    machine.probing = True
    rounds = machine.rounds(machine.run(rounds=ROUNDS))

    def shorten() -> None:
        kernel.queues = 1

    machine.at_order(rounds.turns.contender_side.worlds[0], Kind.FINISH, shorten, after=18)
    rounds.measure()
    assert rounds.behind_gate.calls == 1
    assert rounds.device.raw == []  # no inputs were replaced where it had more calls
