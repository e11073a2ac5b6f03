"""The rounds of a run on simulated worlds: which batches count, the order of the worlds, and what ends the rounds."""

import itertools
from functools import partial

import pytest
from made_kernels import Fault, MadeKernel, noisy, right
from made_machine import MadeCpu, MadeGpu, MadeMachine

from sandbox.protocol.events import Interval, Timed
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import ChooseBatch, CompareOutputs, Draw, OutputFinding
from sandbox.timing.interval import FEWEST
from sandbox.timing.rounds import FEWEST_CALLS, LEAST_ROUNDS, NOOP_EVERY, NOOP_FIRST, Rounds
from sandbox.timing.stopping_rule import StoppingRule
from sandbox.timing.turns import SELDOM_COMPARED, WELL_COMPARED
from sandbox.worlds.exchange import REFERENCE
from sandbox.worlds.failures import WorldFailed
from sandbox.worlds.references import LEVEL_CALLS
from sandbox.worlds.world import World

PAIRS = MadeCpu.pace.pairs


@pytest.mark.parametrize("world", [1, 2])
def test_fixed_rounds_measure_calls_without_overhead(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MadeMachine(kernel=MadeKernel(noisy(50.0)))
    monkeypatch.setattr(machine, "setting", partial(machine.setting, world=world))
    rounds, started = machine.rounds(machine.run(rounds=6)), machine.clock.monotonic()
    rounds.measure()
    assert rounds.turns.rounds == 6
    assert 6 * PAIRS * rounds._pair_seconds < machine.clock.monotonic() - started
    assert len(rounds.call.raw) == 6 * PAIRS
    assert rounds.call.overhead_us == pytest.approx(2.0)
    assert rounds.call.medians() == pytest.approx((98.0, 48.0))
    assert rounds.call.speed.median == pytest.approx(98 / 48)
    assert rounds.device.speed is None


@pytest.mark.parametrize("rival", ["", "rival.py"])
def test_only_a_kernel_that_leads_is_confirmed(rival: str) -> None:
    rounds = MadeMachine().rounds(rival=rival)
    leads = [rounds._leads(Interval(speed, 0.98 * speed, 1.02 * speed)) for speed in (0.5, 1.0, 2.0)]
    assert leads == [bool(rival), False, True]


def test_a_slow_side_shortens_the_batch() -> None:
    machine = MadeMachine(kernel=MadeKernel(noisy(200.0)), reference=MadeKernel(noisy(10_000.0)))
    rounds = machine.rounds()
    rounds.measure()
    assert rounds.calls == int(MadeCpu.pace.slower_s / 10e-3)


@pytest.mark.parametrize("slow_batches", [8, 20])
def test_kernel_slow_only_at_first_gets_long_batches(slow_batches: int) -> None:
    """Also if it is slow in the first batches that count."""
    later, batches = noisy(100.0), itertools.count()

    def call_us(calls: int) -> float:
        return 150_000.0 * calls if next(batches) < slow_batches else later(calls)

    machine = MadeMachine(kernel=MadeKernel(call_us))
    rounds = machine.rounds(machine.run(rounds=12))
    rounds.measure()
    assert (rounds.turns.rounds, rounds.calls) == (12, MadeCpu.pace.calls)
    assert {sample.calls for sample in rounds.samples().call} == {rounds.calls}
    assert next(batches) > slow_batches


@pytest.mark.parametrize("device", ["made-cpu", "made-gpu"])
def test_slow_draws_shorten_batches_and_rounds(device: str) -> None:
    machine = MadeMachine(device, MadeKernel(noisy(100.0, 0.05)), reference=MadeKernel(noisy(100.0, 0.05, 1)))
    machine.oracle.draw_s = 0.0, 0.02
    rounds = machine.rounds(machine.run(budget_s=2.0))
    rounds.measure()
    clocks = (rounds.call, rounds.device) if device == "made-gpu" else (rounds.call,)
    for clock in clocks:
        assert len(clock.raw) >= FEWEST
        assert FEWEST_CALLS <= max(pair.calls for pair in clock.raw) <= 5  # of 60 and more
    assert rounds.turns.rounds >= LEAST_ROUNDS / 2
    assert {pair.reference for pair in rounds.call.raw} == {0, 1}


@pytest.mark.parametrize(("rival", "seconds", "share"), [("", 2.5, 1.0), ("rival.py", 2.5, 1.0), ("", 0.5, 0.38)])
def test_batch_lasts_as_pace_says_whatever_draws_take(rival: str, seconds: float, share: float) -> None:
    machine = MadeMachine("made-gpu", MadeKernel(noisy(800.0)), reference=MadeKernel(noisy(1200.0)))
    machine.oracle.draw_s, machine.oracle.seconds = (0.016, 0.0), 1.2e-3
    rounds = machine.rounds(machine.run(budget_s=seconds), rival=rival)
    rounds.measure()
    usual = int(MadeGpu.pace.batch_s / 0.8e-3) + 1
    assert share * usual <= rounds.calls <= (20 if rival else usual)  # the rival is quicker


def test_one_slot_arena_has_batches_of_one_call() -> None:
    machine = MadeMachine()
    machine.oracle.in_bytes = MadeCpu.arena_bytes[0]
    rounds = machine.rounds()
    rounds.measure()
    assert rounds.prepared.layout.slots == rounds.calls == 1
    assert len(rounds.call.raw) == rounds.turns.rounds == 6
    orders = machine.ranks(machine.started["baseline"][0]).orders
    drawn, compared = (sum(isinstance(order, kind) for order in orders) for kind in (Draw, CompareOutputs))
    discarded = sum(isinstance(order, CompareOutputs) and not order.slots for order in orders)
    assert compared - discarded == drawn - 1  # not of references' first calls; no-op batches need no draw


def test_counted_batches_are_no_longer_than_warm() -> None:
    getting_quicker = itertools.chain([200_000.0, 5000.0], itertools.repeat(300.0))
    machine = MadeMachine(kernel=MadeKernel(lambda calls: calls * next(getting_quicker)))
    rounds = machine.rounds()
    rounds.turns.start()
    rounds.warm_up()
    orders = machine.ranks(rounds.turns.contender_side.worlds[0]).orders
    assert rounds.calls == max(order.count for order in orders if isinstance(order, ChooseBatch))


def test_oracle_sees_first_pairs_and_then_fewer() -> None:
    machine = MadeMachine()
    rounds = machine.rounds(machine.run(rounds=40))
    compared, places = {True: 0, False: 0}, set()

    def note(rank: int, order: CompareOutputs, slot: int) -> OutputFinding:
        if rank == 0 and order.against is not None and slot in order.slots:
            compared[bool(rounds.call.raw)] += 1
            places.add(slot % rounds.calls)
        return right()

    machine.oracle.finding = note
    rounds.measure()
    assert compared[False] >= 1
    seldom = compared[True] + compared[False] - WELL_COMPARED
    assert 0.5 < seldom / (len(rounds.call.raw) / SELDOM_COMPARED) < 2
    assert len(places) > 4  # any call of a batch may be one


@pytest.mark.parametrize("rival", ["", "rival.py"])
def test_kernels_call_on_reference_inputs_where_shapes_differ(rival: str) -> None:
    machine = MadeMachine()
    machine.oracle.varies = True
    rounds = machine.rounds(rival=rival)
    rounds.turns.start()
    before = [len(machine.ranks(world).orders) for world in rounds.turns.worlds]
    clock = rounds.budget_clock
    rounds.warm_up_shapes(100e-6, 0.1)
    for world, start in zip(rounds.turns.worlds, before, strict=True):
        chosen = [order for order in machine.ranks(world).orders[start:] if isinstance(order, ChooseBatch)]
        kernel = world in [side.worlds[0] for side in rounds.turns.kernels]
        slow = world is rounds.turns.contender_side.worlds[0]
        assert sum(order.count for order in chosen) == kernel * (40 if slow else 2 * LEVEL_CALLS)
        assert world.processes.paused
    assert rounds.budget_clock == pytest.approx(clock, abs=1e-6)


def test_every_reference_runs_every_batch_where_shapes_differ() -> None:
    machine = MadeMachine()
    machine.oracle.varies = True
    rounds = machine.rounds(machine.run(rounds=6), references=3)
    calls = dict.fromkeys(rounds.turns.worlds, 0)

    def count(world: World) -> None:
        batch = machine.ranks(world).batch
        calls[world] += 0 if batch.noop else batch.count

    for world in calls:
        machine.ranks(world).on_go = partial(count, world)
    rounds.measure()
    *references, kernel = calls.values()
    assert references == [kernel - 2 * LEVEL_CALLS] * 3  # references made these calls earlier
    by_turn = [list(found) for _, found in itertools.groupby(rounds.call.raw, lambda pair: pair.turn)]
    assert [sorted(pair.reference for pair in found) for found in by_turn] == [[0, 1, 2]] * rounds.fewest_pairs
    assert all(len({pair.contender_us for pair in found}) == 1 for found in by_turn)
    assert {sum(pair.baseline_first for pair in found) for found in by_turn} == {0, 1, 2, 3}


def test_calls_with_new_shapes_cost_no_budget() -> None:
    seconds = []
    for varies in (False, True):
        machine = MadeMachine(kernel=MadeKernel(noisy(100.0)), reference=MadeKernel(noisy(100.0)))
        machine.oracle.varies = varies
        rounds = machine.rounds(machine.run())
        started = machine.clock.monotonic()
        rounds.measure()
        seconds.append(machine.clock.monotonic() - started - rounds.shapes_seconds)
        assert (rounds.shapes_seconds > 0) == varies
    assert seconds[1] == pytest.approx(seconds[0], abs=0.1)


def test_references_take_turns_and_either_side_runs_first() -> None:
    machine = MadeMachine()
    rounds = machine.rounds(machine.run(rounds=8), references=2)
    begun = machine.sides_in_order(rounds)
    rounds.measure()
    assert [pair.reference for pair in rounds.call.raw[::PAIRS]] == [0, 1] * 4
    first = [pair.baseline_first for pair in rounds.call.raw]
    assert set(first) == {False, True}
    assert begun[-2 * len(first) :: 2] == first


def test_one_world_runs_while_inputs_of_others_wait() -> None:
    machine = MadeMachine()
    rounds = machine.rounds()
    at_go, started, resting_at_reveal = [], [], []
    worlds = rounds.turns.worlds
    for world in worlds:
        machine.ranks(world).on_go = lambda: (
            at_go.append(all(each.processes.paused for each in worlds)),
            machine.clock.after(1e-6, lambda: started.append([each.processes.paused for each in worlds])),
        )
    machine.at_order(
        machine.started["baseline"][0],
        Kind.REVEAL,
        lambda: resting_at_reveal.append(all(each.processes.paused for each in worlds)),
        always=True,
    )
    rounds.measure()
    assert len(started) > 6 * PAIRS * 2
    assert all(at_go)  # also the world whose turn it is: the clock starts before it resumes
    assert all(paused.count(False) == 1 for paused in started)
    assert resting_at_reveal
    assert all(resting_at_reveal)


def test_both_worlds_of_warm_pair_share_pinned_cores() -> None:
    machine = MadeMachine()
    rounds = machine.rounds(references=1)
    pinned: list[tuple[int, list[int]]] = []
    for world in rounds.turns.worlds:
        pins = machine.processes(world).pins
        machine.ranks(world).on_go = lambda pins=pins: pinned.append((rounds._turn, pins[-1][1]))
    rounds.measure()
    assert {pid for world in rounds.turns.worlds for pid in world.processes.rank_pids} == set(rounds.turns.kind.settled)
    by_turn: dict[int, set[tuple[int, ...]]] = {}
    for turn, cores in pinned:
        by_turn.setdefault(turn, set()).add(tuple(cores))
    assert all(len(cores) == 1 for cores in by_turn.values())
    single = {cores for found in by_turn.values() for cores in found if len(cores) == 1}
    assert single == {(4,), (5,)}  # rank 1's cores
    assert by_turn[1] == {(4, 5)}  # worlds are not pinned while they warm up
    assert set(machine.processes(rounds.turns.worlds[0]).pins[-2][1]) == {0, 1}


def test_worlds_are_unpinned_after_a_run_that_failed() -> None:
    machine = MadeMachine(kernel=MadeKernel(faults=[Fault(Kind.GO, Kind.RAISED, after=10)]))
    rounds = machine.rounds()
    with pytest.raises(WorldFailed):
        rounds.measure()
    for world in rounds.turns.worlds:
        assert machine.processes(world).pins[-2:] == [(0, [0, 1]), (1, [4, 5])]


def kept(machine: MadeMachine, rounds: Rounds, side: int) -> int:
    orders = [o for world in rounds.turns.sides[side].worlds for o in machine.ranks(world).orders]
    return sum(isinstance(order, ChooseBatch) and order.noop for order in orders)


def test_no_op_batches_run_first_and_then_regularly() -> None:
    machine = MadeMachine()
    rounds = machine.rounds(machine.run(rounds=9))
    rounds.measure()
    assert kept(machine, rounds, 0) == NOOP_FIRST + 9 // NOOP_EVERY
    assert kept(machine, rounds, 1) == 0


def test_progress_is_shown_with_last_round_as_end() -> None:
    machine = MadeMachine(kernel=MadeKernel(noisy(100.0, 0.05)), reference=MadeKernel(noisy(100.0, 0.05, 1)))
    rounds = machine.rounds(machine.run(budget_s=1.0), references=1)
    rounds.measure()
    shown = machine.of(Timed)
    assert len(shown) > 2
    assert [sum(pair.round == number for pair in rounds.call.raw) for number in range(3)] == [3, 3, PAIRS]
    assert all(event.round <= event.rounds for event in shown)
    assert shown[-1].round == shown[-1].rounds == rounds.turns.rounds
    assert shown[-1].call == rounds.call.speed


def test_iterations_of_every_pair_match_the_reference() -> None:
    machine = MadeMachine()
    rounds = machine.rounds(references=1)
    rounds.measure()
    orders = machine.ranks(machine.started["baseline"][0]).orders
    compared = [order for order in orders if isinstance(order, CompareOutputs) and (order.slots or order.beside)]
    assert {order.against for order in compared} == {REFERENCE}
    seen = [sorted([*order.slots, *order.beside]) for order in compared[-6:]]
    assert seen == [list(range(PAIRS * rounds.calls))] * 6


def test_slow_assembly_costs_a_kernel_no_rounds() -> None:
    kernels = (MadeKernel(noisy(50.0, 0.2)), MadeKernel(noisy(50.0, 0.2), arm_s=0.5))
    quick, slow = (MadeMachine(kernel=kernel).rounds() for kernel in kernels)
    for rounds in (quick, slow):
        rounds.stopping_rule = StoppingRule(0.2)
        rounds.measure()
    assert slow.turns.rounds >= quick.turns.rounds // 2
