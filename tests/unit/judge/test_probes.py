"""Probes on simulated worlds: ranks that start apart, and batches stopped, wholly or in one rank, to replace inputs."""

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest
from made_kernels import MadeKernel, noisy, right, wrong
from made_machine import MadeMachine

from sandbox.machine.placement import core_in_turn
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import ChooseBatch, CompareOutputs, DrawAgain, LookAhead, Order, OutputFinding, Reveal
from sandbox.protocol.verdict import Verdict
from sandbox.timing import probes
from sandbox.timing.rounds import Rounds
from sandbox.timing.turns import MEANINGFUL, Batch
from sandbox.worlds.exchange import CONTENDER, REFERENCE, RIVAL, Failed
from sandbox.worlds.failures import HarnessFailed
from sandbox.worlds.world import BEGIN_SECONDS

AnyOrder = TypeVar("AnyOrder", bound=Order[Any])


def made(kernel: MadeKernel | None = None, rival: MadeKernel | None = None, device: str = "made-cpu") -> MadeMachine:
    machine = MadeMachine(device, kernel or MadeKernel(noisy(500.0)), rival=rival)
    machine.probing = True
    return machine


def orders(machine: MadeMachine, kind: type[AnyOrder]) -> list[AnyOrder]:
    """Returns the orders of this kind that the oracle world got."""
    given = machine.ranks(machine.started["baseline"][0]).orders
    return [order for order in given if isinstance(order, kind)]


def apart(machine: MadeMachine) -> list[int]:
    """Returns the ranks that were started on their own, in order."""
    return [order.rank for order in orders(machine, Reveal) if order.rank is not None and order.count > 1]


def redrawn(machine: MadeMachine, alone: bool) -> list[DrawAgain]:
    """Returns the orders that replaced inputs: of one rank alone, or of all ranks."""
    return [again for again in orders(machine, DrawAgain) if again.replace and (again.alone is not None) == alone]


def measured(machine: MadeMachine, rival: str = "") -> Rounds:
    rounds = machine.rounds(rival=rival)
    rounds.measure()
    return rounds


def at_release(rounds: Rounds, machine: MadeMachine, note) -> None:
    """Calls note(ranks) when ranks of the contender world are released on their own."""
    lines = machine.ranks(rounds.turns.contender_side.worlds[0])
    release = lines.release

    def noting(ranks: list[int] | None = None) -> None:
        if ranks is not None:
            note(ranks)
        release(ranks)

    lines.release = noting  # type: ignore[method-assign, assignment]


def test_measuring_on_makes_probes_due_again() -> None:
    machine = made()
    rounds = measured(machine)
    before = len(apart(machine)), len(redrawn(machine, alone=False)), len(redrawn(machine, alone=True))
    rounds.turns.contender_side.observations.ready_seconds = 1e6  # of the measurement before
    rounds.measure_on(0.5, lambda: False)
    after = len(apart(machine)), len(redrawn(machine, alone=False)), len(redrawn(machine, alone=True))
    assert all(more > some > 0 for some, more in zip(before, after, strict=True))


def test_every_run_has_all_kinds() -> None:
    machine = made()
    rounds = measured(machine)
    assert len(apart(machine)) == 2 * probes.WANTED_APART
    assert sorted(apart(machine)[:2]) == [0, 1]
    assert len(redrawn(machine, alone=True)) == probes.WANTED_HELD
    assert len(redrawn(machine, alone=False)) >= probes.WANTED_REPLACED
    assert not rounds.probes.left(rounds.calls)
    assert rounds.probes.proven


def test_few_probes_of_duels_follow_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = made(rival=MadeKernel(noisy(500.0)))
    rounds = machine.rounds(machine.run(rounds=25), rival="rival.py")
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "finish", lambda: None)
        rounds.measure()
    noops = [len(found) for found in rounds.call.noop.values()]
    assert [due.replaced for due in rounds.probes.due] == [1, 1]  # a kernel can count the others
    assert not rounds.probes.left(rounds.calls)
    rounds.probes.hurry = True
    assert rounds.probes.left(rounds.calls) == 2
    rounds.finish()
    assert noops == [len(found) for found in rounds.call.noop.values()]


def test_inputs_of_stopped_rank_come_before_its_start() -> None:
    machine = made()
    rounds = machine.rounds()
    processes = machine.processes(rounds.turns.contender_side.worlds[0])
    seen: list[bool] = []
    at_release(rounds, machine, lambda ranks: seen.append(ranks == apart(machine)[-1:] and ranks[0] in processes.held))
    rounds.measure()
    assert len(seen) == 2 * probes.WANTED_APART
    assert all(seen)
    assert processes.held == []


@pytest.mark.parametrize(("waits_s", "at_least_s", "at_most_s"), [(0.02, 0.02, 0.05), (10.0, BEGIN_SECONDS, 1.0)])
def test_next_rank_starts_when_former_began_or_starves(waits_s, at_least_s, at_most_s):
    machine = made()
    rounds = machine.rounds()
    lines = machine.ranks(rounds.turns.contender_side.worlds[0])
    lines.waits_for_core_s = waits_s
    started: list[float] = []
    at_release(rounds, machine, lambda ranks: started.append(lines.clock.monotonic()))
    rounds.measure()
    for first, second in zip(started[::2], started[1::2], strict=True):
        assert at_least_s < second - first < at_most_s


def test_output_wrong_when_ranks_start_apart_ends_run() -> None:
    machine = made()
    machine.oracle.finding = lambda rank, order, slot: wrong() if order.against is None and apart(machine) else right()
    with pytest.raises(Failed) as failed:
        measured(machine)
    assert failed.value.verdict is Verdict.WRONG_RESULT
    assert failed.value.failure.message.endswith((probes.NOT_YET, probes.NOT_ITS_OWN))
    assert failed.value.side == CONTENDER


@pytest.mark.parametrize("alone", [False, True])
def test_output_that_belongs_to_old_inputs_ends_run(alone: bool) -> None:
    machine = made()

    def finding(rank: int, order: CompareOutputs, slot: int) -> OutputFinding:
        replaced = order.against is None and any(again.slot in order.beside for again in redrawn(machine, alone))
        return wrong() if replaced else right()

    machine.oracle.finding = finding
    with pytest.raises(Failed) as failed:
        measured(machine)
    assert failed.value.verdict is Verdict.WRONG_RESULT
    hint = probes.OF_A_PEER.format(rank=redrawn(machine, alone)[0].alone) if alone else probes.NOT_ITS_OWN
    assert failed.value.failure.message.endswith(hint)


@pytest.mark.parametrize("side", [CONTENDER, RIVAL])
def test_duel_compares_probes_of_both(side: int) -> None:
    machine = made(rival=MadeKernel(noisy(700.0)))

    def finding(rank: int, order: CompareOutputs, slot: int) -> OutputFinding:
        probing = not order.slots and len(order.beside) < rounds.calls // 2  # timed batches are compared whole
        return wrong() if order.side == side and probing else right()

    machine.oracle.finding = finding
    rounds = machine.rounds(rival="rival.py")
    with pytest.raises(Failed) as failed:
        rounds.measure()
    assert failed.value.side == side
    assert failed.value.failure.message.endswith(
        (probes.NOT_YET, probes.NOT_ITS_OWN, probes.OF_A_PEER.format(rank=0), probes.OF_A_PEER.format(rank=1))
    )


def test_only_unbegun_calls_get_other_inputs() -> None:
    machine = made(MadeKernel(noisy(500.0), begun=lambda rank, calls: 3 + rank))
    rounds, stopped = machine.rounds(), []
    processes = machine.processes(rounds.turns.contender_side.worlds[0])
    at_redraw(rounds, machine, lambda order: stopped.append(processes.paused), alone=False)
    rounds.measure()
    assert all(stopped)
    slots = {again.slot for again in redrawn(machine, alone=False)}
    calls = max(
        order.count for order in machine.ranks(machine.started["spare"][0]).orders if isinstance(order, ChooseBatch)
    )
    assert slots
    assert {slot % calls for slot in slots} <= set(range(4, calls))


def test_replacing_before_all_calls_proves_nothing() -> None:
    machine = made(MadeKernel(noisy(500.0), begun=lambda rank, calls: 0))
    rounds = measured(machine)
    due = rounds.probes.due[0]
    assert (due.tries, due.held_tries) == (probes.MOST_TRIES, probes.MOST_HELD_TRIES)
    assert (due.replaced, due.held) == (probes.WANTED_REPLACED, probes.WANTED_HELD)
    assert not rounds.probes.proven
    assert orders(machine, DrawAgain)
    assert {slot for order in orders(machine, LookAhead) for slot in order.ended} == {0}


def test_calls_that_count_too_soon_fail() -> None:
    rounds = made(MadeKernel(begun=lambda rank, calls: calls, launch_us=9.0, lies=True), device="made-gpu").rounds()
    with pytest.raises(Failed, match="count as begun before") as failed:
        rounds.measure()
    assert failed.value.verdict is Verdict.PROTOCOL


def test_outputs_of_calls_that_have_ended_are_noted() -> None:
    machine = made(MadeKernel(noisy(500.0), begun=lambda rank, calls: 3 + rank))
    measured(machine)
    assert {(order.first - order.batch, *order.ended) for order in orders(machine, LookAhead)} == {(4, 2, 3)}


@pytest.mark.parametrize(("fits", "batches"), [(True, probes.WANTED_MEANINGFUL), (False, 0)])
def test_timed_batches_have_meaningful_inputs_beside_upstreams(fits: bool, batches: int) -> None:
    machine = made()
    machine.preset, machine.oracle.sealed = "paper", False  # memory that cannot be sealed allows no probes
    machine.oracle.fits = lambda rank, order: fits
    rounds = machine.rounds()
    compared: list[Sequence[int]] = []
    exchange = rounds.turns.contender_side.exchange
    require_right = exchange.require_right

    def note(slots: Sequence[int], *more: Any, hint: str = "", **kept: Any) -> None:
        if hint == MEANINGFUL and more == (REFERENCE,):  # which has run them: equal outputs need no oracle
            compared.append(slots)
        require_right(slots, *more, hint=hint, **kept)

    exchange.require_right = note  # type: ignore[method-assign]
    rounds.measure()
    assert rounds.probes.meaningful == 0
    assert sum(map(len, compared)) == probes.MOST_MEANINGFUL * batches
    assert len(rounds.call.raw) == 24  # they take no pair away


def test_more_inputs_are_replaced_in_long_runs() -> None:
    machine = made()
    rounds = machine.rounds(machine.run(rounds=60))
    rounds.probes.chance = random.Random(2)
    rounds.measure()
    assert (
        rounds.probes.due[0].tries > probes.WANTED_REPLACED + 1
    )  # else a kernel that counts them could work ahead afterwards


def test_misfit_inputs_are_drawn_in_few_batches() -> None:
    machine = made()
    machine.oracle.fits = lambda rank, order: order.alone is not None
    rounds = measured(machine)
    assert (rounds.probes.due[0].replaced, rounds.probes.due[0].unfit_tries) == (probes.WANTED_REPLACED, 2)
    assert sum(order.alone is None for order in orders(machine, DrawAgain)) >= 2 * 8 * 4
    assert not rounds.probes.proven


def test_replacement_inputs_must_fit_on_every_rank() -> None:
    machine = made()
    machine.oracle.fits = lambda rank, order: order.seed % 2 == rank
    rounds = measured(machine)
    assert not rounds.probes.proven
    assert not any(again.replace for again in orders(machine, DrawAgain))


def at_redraw(rounds: Rounds, machine: MadeMachine, note: Callable[[DrawAgain], None], alone: bool = True) -> None:
    """Calls note(order) when the trusted ranks get the order to replace the inputs of one rank alone, or of all."""
    trusted = machine.ranks(machine.started["baseline"][0])
    send = trusted.send

    def noting(given, fds=None) -> None:
        if isinstance(given[0], DrawAgain) and (given[0].alone is not None) == alone and given[0].replace:
            note(given[0])
        send(given, fds)

    trusted.send = noting  # type: ignore[method-assign]


def test_next_inputs_of_lone_stopped_rank_are_replaced() -> None:
    machine = made(MadeKernel(noisy(500.0), begun=lambda rank, calls: 3 + rank))
    rounds = machine.rounds()
    processes = machine.processes(rounds.turns.contender_side.worlds[0])
    seen = []
    at_redraw(rounds, machine, lambda order: seen.append((order, list(processes.held), processes.paused)))
    rounds.measure()
    assert len(seen) == probes.WANTED_HELD
    for order, held, paused in seen:
        assert (held, paused) == ([order.alone], False)
        assert order.slot % rounds.calls == 3 + order.alone
    assert processes.held == []
    revealed = [
        (order.rank, order.first) for order in orders(machine, Reveal) if order.rank is not None and order.count == 1
    ]
    assert revealed == [(order.alone, order.slot) for order, _, _ in seen]


@pytest.mark.parametrize("ahead", [0, 2])
def test_rank_is_stopped_until_another_finished_its_call(ahead: int) -> None:
    machine = made(MadeKernel(noisy(500.0), begun=lambda rank, calls: 3 + ahead * rank))
    rounds = machine.rounds()
    processes = machine.processes(rounds.turns.contender_side.worlds[0])
    pause, stopped, found = processes.pause_rank, [0.0], []

    def pause_rank(rank: int) -> None:
        stopped.append(machine.clock.monotonic())
        pause(rank)

    processes.pause_rank = pause_rank  # type: ignore[method-assign]
    at_redraw(rounds, machine, lambda order: found.append((order.alone, machine.clock.monotonic() - stopped[-1])))
    rounds.measure()
    assert len(found) == probes.WANTED_HELD
    for rank, seconds in found:
        assert (seconds > probes.HELD_SECONDS) == (ahead == 0 or rank == 1)


def test_unreplaceable_inputs_are_not_tried_for_ever() -> None:
    machine = made()
    machine.oracle.fits = lambda rank, order: order.alone is None
    rounds = measured(machine)
    assert rounds.prepared.misfits == {0: probes.MOST_MISFITS, 1: probes.MOST_MISFITS}
    assert not redrawn(machine, alone=True)
    assert rounds.probes.proven


def test_a_rank_goes_on_when_its_probe_fails() -> None:
    machine = made()
    rounds = machine.rounds()
    processes = machine.processes(rounds.turns.contender_side.worlds[0])

    def fail(order: DrawAgain) -> None:
        raise HarnessFailed("no")

    at_redraw(rounds, machine, fail)
    with pytest.raises(HarnessFailed):
        rounds.measure()
    assert processes.held == []


def test_an_output_before_its_call_breaks_the_protocol() -> None:
    machine = made()
    machine.oracle.written = lambda rank, order: rank == 1
    with pytest.raises(Failed) as failed:
        measured(machine)
    assert failed.value.verdict is Verdict.PROTOCOL
    assert failed.value.failure.rank == 1


def test_one_rank_has_no_peers_to_lag() -> None:
    machine = made()
    machine.setting = lambda **changes: MadeMachine.setting(machine, **({"world": 1} | changes))  # type: ignore[method-assign]
    measured(machine)
    assert apart(machine) == []
    assert redrawn(machine, alone=False)
    assert not redrawn(machine, alone=True)


def test_probes_use_usual_cores_and_leave_no_sample() -> None:
    machine = made()
    rounds = machine.rounds()
    rounds.turns._shares = [[0, 1, 2, 3], [4, 5, 6, 7]]
    pins = machine.processes(rounds.turns.contender_side.worlds[0]).pins
    compared: list[int] = []
    others: list[int] = []
    preceded: set[int] = set()
    run = rounds.probes.run
    rounds.probes.chance = random.Random(1)
    for world in rounds.turns.baseline_side.worlds:
        machine.ranks(world).on_go = lambda: others.append(len(compared))

    def noting(probe: probes.Probe, batch: Batch, seconds: float) -> None:
        before, pinned, ran = len(rounds.call.raw), len(pins), len(others)
        run(probe, batch, seconds)
        preceded.add(len(others) - ran)
        compared.append(len(rounds.call.raw) - before)
        turn = batch.first // batch.calls + rounds.turns.rounds // len(rounds.turns.baseline_side.worlds)
        assert pins[pinned] == (0, [core_in_turn(range(4), turn)])

    rounds.probes.run = noting  # type: ignore[method-assign]
    rounds.measure()
    assert compared
    assert set(compared) == {0}
    assert preceded == {0, 1}  # as before timed batches


def test_batch_behind_gate_is_stopped_while_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MadeMachine("made-gpu", MadeKernel(noisy(500.0), noisy(30.0)), reference=MadeKernel(noisy(4000.0)))
    machine.probing = True
    rounds = machine.rounds(references=4)
    processes, clock = machine.processes(rounds.turns.contender_side.worlds[0]), machine.clock
    paused, waited = [0.0], []
    for name in ("pause", "pause_rank"):
        call = getattr(processes, name)
        noted = lambda *rank, call=call: (paused.append(clock.monotonic()), call(*rank))[1]  # noqa: E731
        monkeypatch.setattr(processes, name, noted)
    oracle, held = machine.started["baseline"][0], []
    machine.at_order(oracle, Kind.LOOK_AHEAD, lambda: waited.append(clock.monotonic() - paused[-1]), always=True)
    at_redraw(rounds, machine, lambda order: held.append(clock.monotonic() - paused[-1]))
    rounds.measure()
    assert max(held) > 8 * probes.LAUNCHED_SECONDS  # a rank's begun calls were all launched since its start
    assert min(waited) > 0.9 * probes.LAUNCHED_SECONDS  # launched work reads its inputs before others are revealed
    assert max(waited) < 20 * probes.LAUNCHED_SECONDS  # the slow reference's calls do not count
    assert rounds.behind_gate.probes.proven
    assert len(redrawn(machine, alone=True)) == 2 * probes.WANTED_HELD
    assert rounds.behind_gate.runs
    assert rounds.turns.contender_side.worlds[0].idle
