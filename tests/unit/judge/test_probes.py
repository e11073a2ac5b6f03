"""Batches that are not timed, on made worlds: ranks that start apart, and inputs that are replaced while a batch is stopped."""

import pytest
from made_kernels import MadeKernel, noisy, right, wrong
from made_machine import MadeMachine

from sandbox.protocol.messages import CompareOutputs, DrawAgain, LookAtProgress, Order, Progress, Reveal
from sandbox.protocol.verdict import Verdict
from sandbox.timing.probes import (
    APART_CALLS,
    MANY_CALLS,
    MOST_TRIES,
    NOT_ITS_OWN,
    NOT_YET,
    WANTED_APART,
    WANTED_REPLACED,
)
from sandbox.timing.rounds import Rounds
from sandbox.worlds.exchange import CONTENDER, RIVAL, Failed
from sandbox.worlds.world import BEGIN_SECONDS


def stoppable(kernel: MadeKernel | None = None, rival: MadeKernel | None = None) -> MadeMachine:
    return MadeMachine("made-stoppable", kernel or MadeKernel(noisy(500.0)), rival)


def orders(machine: MadeMachine, kind: type[Order]) -> list[Order]:
    """Of this kind, as the trusted world got them."""
    return [
        order for order in machine.ranks(machine.started["baseline"][0]).orders if isinstance(order, kind)
    ]


def apart(machine: MadeMachine) -> list[int]:
    """The ranks that were started on their own, in order."""
    return [
        order.rank
        for order in orders(machine, Reveal)
        if isinstance(order, Reveal) and order.rank is not None
    ]


def measured(machine: MadeMachine, rival: str = "") -> Rounds:
    rounds = machine.rounds(rival=rival)
    rounds.measure()
    return rounds


def test_every_run_has_both_kinds() -> None:
    machine = stoppable()
    rounds = measured(machine)
    assert len(apart(machine)) == 2 * WANTED_APART
    assert sorted(apart(machine)[:2]) == [0, 1]
    assert (rounds.probes.apart_due, rounds.probes.replaced_due) == (0, 0)
    assert rounds.done == 6


def test_a_kind_of_device_whose_batches_cannot_be_stopped_has_none() -> None:
    machine = MadeMachine()
    rounds = measured(machine)
    assert rounds.probes.due == []
    assert apart(machine) == []
    assert orders(machine, DrawAgain) == []


def test_the_inputs_of_a_rank_come_right_before_its_own_start() -> None:
    machine = stoppable()
    rounds = machine.rounds()
    world = rounds.turns.mine.worlds[0]
    seen: list[object] = []
    lines = machine.ranks(world)
    release = lines.release

    def noting(ranks: list[int] | None = None) -> None:
        if ranks is not None:
            seen.append((apart(machine)[-1], ranks))
        release(ranks)

    lines.release = noting  # type: ignore[method-assign, assignment]
    rounds.measure()
    assert len(seen) == 2 * WANTED_APART
    assert all(ranks == [revealed] for revealed, ranks in seen)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("waits_s", "at_least_s", "at_most_s"), [(0.02, 0.02, 0.05), (10.0, BEGIN_SECONDS, 1.0)]
)
def test_the_next_rank_starts_when_the_one_before_has_begun_or_gets_no_core(waits_s, at_least_s, at_most_s):
    machine = stoppable()
    rounds = machine.rounds()
    lines = machine.ranks(rounds.turns.mine.worlds[0])
    lines.waits_for_core_s = waits_s
    started: list[float] = []
    release = lines.release

    def noting(ranks: list[int] | None = None) -> None:
        if ranks is not None:
            started.append(lines.clock.monotonic())
        release(ranks)

    lines.release = noting  # type: ignore[method-assign, assignment]
    rounds.measure()
    for first, second in zip(started[::2], started[1::2], strict=True):
        assert at_least_s < second - first < at_most_s


def test_an_output_that_is_wrong_only_when_ranks_start_apart_ends_the_run() -> None:
    machine = stoppable()
    machine.oracle.finding = lambda rank, order, slot: (
        wrong() if order.against is None and len(order.slots) == APART_CALLS and apart(machine) else right()
    )
    with pytest.raises(Failed) as failed:
        measured(machine)
    assert failed.value.verdict is Verdict.WRONG_RESULT
    assert failed.value.failure.message.endswith(NOT_YET)
    assert failed.value.side == CONTENDER


def replaced(order: CompareOutputs, machine: MadeMachine) -> bool:
    drawn = [again for again in orders(machine, DrawAgain) if isinstance(again, DrawAgain) and again.replace]
    return order.against is None and bool(drawn) and drawn[-1].slot in order.slots


def test_an_output_that_belongs_to_the_old_inputs_ends_the_run() -> None:
    machine = stoppable()
    machine.oracle.finding = lambda rank, order, slot: wrong() if replaced(order, machine) else right()
    with pytest.raises(Failed) as failed:
        measured(machine)
    assert failed.value.verdict is Verdict.WRONG_RESULT
    assert failed.value.failure.message.endswith(NOT_ITS_OWN)


def test_only_calls_that_no_rank_can_have_begun_get_other_inputs() -> None:
    machine = stoppable()
    machine.oracle.progress = lambda rank, order: Progress(3 + rank, False, True)
    measured(machine)
    slots = [again.slot for again in orders(machine, DrawAgain) if isinstance(again, DrawAgain)]
    assert min(slots) == 5


def test_a_batch_that_had_ended_is_tried_again_but_not_for_ever() -> None:
    machine = stoppable()
    machine.oracle.progress = lambda rank, order: Progress(order.count, False, True)
    rounds = measured(machine)
    assert rounds.probes.tries == MOST_TRIES
    assert rounds.probes.replaced_due == WANTED_REPLACED
    assert orders(machine, DrawAgain) == []


def test_inputs_are_replaced_only_by_those_that_fit_on_every_rank() -> None:
    machine = stoppable()
    machine.oracle.fits = lambda rank, order: [(n % 2 == rank) for n in range(len(order.seeds))]
    rounds = measured(machine)
    assert rounds.probes.replaced_due == WANTED_REPLACED
    assert not any(again.replace for again in orders(machine, DrawAgain) if isinstance(again, DrawAgain))


def test_progress_that_cannot_be_seen_replaces_nothing() -> None:
    machine = stoppable()
    machine.oracle.progress = lambda rank, order: Progress(0, rank == 1, rank == 0)
    rounds = measured(machine)
    assert (rounds.probes.replaced_due, rounds.probes.tries) == (0, 1)
    assert orders(machine, DrawAgain) == []


def test_an_output_before_its_call_breaks_the_protocol() -> None:
    machine = stoppable()
    machine.oracle.progress = lambda rank, order: Progress(1, rank == 1, True)
    with pytest.raises(Failed) as failed:
        measured(machine)
    assert failed.value.verdict is Verdict.PROTOCOL
    assert failed.value.failure.rank == 1


def test_both_kernels_of_a_duel_are_tried() -> None:
    machine = stoppable(rival=MadeKernel(noisy(700.0)))
    measured(machine, rival="rival.py")
    sides = {
        order.side
        for order in orders(machine, Reveal)
        if isinstance(order, Reveal) and order.rank is not None
    }
    assert sides == {CONTENDER, RIVAL}
    assert len(apart(machine)) == 2 * 2 * WANTED_APART


def test_one_rank_has_no_peers_to_start_apart_from() -> None:
    machine = stoppable()
    machine.setting = lambda **changes: MadeMachine.setting(machine, **({"world": 1} | changes))  # type: ignore[method-assign]
    measured(machine)
    assert apart(machine) == []
    assert orders(machine, DrawAgain)


def test_untimed_batches_leave_no_sample() -> None:
    with_probes, without = stoppable(), MadeMachine(kernel=MadeKernel(noisy(500.0)))
    samples = [len(measured(machine).samples().call) for machine in (with_probes, without)]
    assert samples[0] == samples[1]


def test_batches_that_are_stopped_have_many_calls() -> None:
    machine = stoppable()
    measured(machine)
    looks = [order for order in orders(machine, LookAtProgress) if isinstance(order, LookAtProgress)]
    assert len(looks) >= WANTED_REPLACED
    assert {order.count for order in looks} == {MANY_CALLS}
