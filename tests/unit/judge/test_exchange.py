"""The exchange between the oracle world and a kernel's world, on simulated worlds."""

import gc
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from made_kernels import MadeKernel, MadeOracle, figures, right, wrong
from made_machine import MadeMachine

from sandbox.memory.host import TensorPlace
from sandbox.protocol import messages
from sandbox.protocol.events import OutputError, RankChecked
from sandbox.protocol.frames import Kind
from sandbox.protocol.verdict import Verdict
from sandbox.worlds.exchange import CONTENDER, REFERENCE, RIVAL, Exchange, Failed
from sandbox.worlds.failures import HarnessFailed
from sandbox.worlds.world import State


def exchange(machine: MadeMachine) -> Exchange:
    pool, setting = machine.pool(), machine.setting()
    stage = pool.oracle.prepare(setting)
    return machine.exchange(stage, pool.contenders.take(setting))


def descriptors() -> int:
    gc.collect()  # closes what earlier tests left open, before descriptors are counted
    return len(os.listdir("/proc/self/fd"))


def test_arenas_reach_twins_and_no_descriptor_stays() -> None:
    before = descriptors()
    machine = MadeMachine()
    found = exchange(machine)
    found.hand_over_arenas()
    made = [o for o in machine.ranks(found.oracle).orders if isinstance(o, messages.MakeArenas)]
    assert [order.own for order in made] == [True, False]
    assert descriptors() == before


def test_lost_descriptors_are_harness_error_and_closed() -> None:
    before = descriptors()
    machine = MadeMachine()
    machine.oracle.lost_fds = True
    with pytest.raises(HarnessFailed, match="too many open files"):
        exchange(machine)
    assert descriptors() == before


def test_iterations_are_drawn_for_all_sides_and_armed() -> None:
    machine = MadeMachine()
    found = exchange(machine)
    found.sides = [CONTENDER, RIVAL]
    found.draw(6, timed=False)
    draw = machine.ranks(found.oracle).orders[-1]
    assert isinstance(draw, messages.Draw)
    assert (draw.sides, draw.timed, len(set(draw.seeds))) == ([CONTENDER, RIVAL], False, 6)
    found.arm(found.contender)
    armed = machine.ranks(found.contender).orders[-1]
    assert isinstance(armed, messages.Arm)
    assert [table.index for table in armed.slots] == list(range(6))


def test_empty_answers_are_taken_by_next_wait() -> None:
    found = exchange(MadeMachine())
    found.take(0, 2)
    found.discard_outputs()
    found.draw(3, timed=True)
    assert [len(tables) for tables in found.tables] == [3, 3]
    assert found.oracle.last_owed() is None


def test_outputs_are_copied_when_that_was_awaited() -> None:
    machine = MadeMachine()
    found = exchange(machine)
    found.take(0, 2)
    found.take(2, 2)
    started = machine.clock.monotonic()
    found.await_begun()
    assert machine.clock.monotonic() > started
    assert found.oracle.missing(Kind.AWAKE) == [0, 1]  # no answer is left


def test_one_order_assembles_a_batch_and_chooses_it() -> None:
    machine = MadeMachine()
    found = exchange(machine)
    found.draw(6, timed=False)
    found.arm_and_choose(found.contender, messages.ChooseBatch(2, 3, warm=1))
    armed, chosen = machine.ranks(found.contender).orders[-2:]
    assert isinstance(armed, messages.Arm)
    assert [table.index for table in armed.slots] == [2, 3, 4]
    assert armed.batch == chosen == messages.ChooseBatch(2, 3, warm=1)
    assert found.contender.state is State.ARMED
    found.shapes_vary = True  # then they come with GO
    found.arm_and_choose(found.contender, messages.ChooseBatch(2, 3, warm=1))
    orders = machine.ranks(found.contender).orders
    assert orders[-2] == messages.Arm([], batch=messages.ChooseBatch(2, 3, warm=1))
    found.contender.go()
    timed = [order for order in orders if isinstance(order, messages.Arm) and order.timed]
    assert [slot.index for order in timed for slot in order.slots] == [2, 3, 4]
    assert not found.contender.before_go


@pytest.mark.parametrize(("by_rank", "by_slot"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_shapes_vary_by_rank_and_by_iteration(by_rank: int, by_slot: int) -> None:
    machine = MadeMachine()
    machine.oracle.tensors = lambda rank, slot: [TensorPlace("x", 8, (4 + by_rank * rank + by_slot * slot,), 0)]
    (found := exchange(machine)).draw(3, timed=False)
    assert found.shapes_vary is bool(by_rank and by_slot)


@pytest.mark.parametrize("side", [CONTENDER, RIVAL])
def test_lost_poison_at_next_draw_blames_its_side(side: int) -> None:
    machine = MadeMachine()
    found = exchange(machine)
    machine.oracle.touched = lambda rank, order: [side] if rank == 1 else []
    found.draw(2, timed=False)
    with pytest.raises(Failed, match="rank 1 wrote to an output") as failed:
        found.draw(2, timed=True)
    assert (failed.value.verdict, failed.value.side) == (Verdict.LATE_OUTPUT, side)
    with pytest.raises(Failed):
        found.require_untouched()
    machine.oracle.touched = lambda rank, order: [REFERENCE]
    with pytest.raises(HarnessFailed, match="rank 0 of the baseline wrote to an output"):
        found.require_untouched()


def test_longest_foreign_moment_of_any_rank_counts() -> None:
    machine = MadeMachine()
    moments = iter([3.0, 250.0, 1.0, 2.0])
    machine.oracle = MadeOracle(foreign_us=lambda order: next(moments))
    found = exchange(machine)
    assert found.reveal(0, 2) == 0.0
    assert found.reveal(0, 2, watch=True) == 250.0
    assert found.foreign_us() == 2.0
    looked = machine.ranks(found.oracle).orders[-1]
    assert isinstance(looked, messages.Reveal)
    assert looked.side is None


@pytest.mark.parametrize("sealed", [True, False])
def test_batch_ends_with_done_and_fetches_outputs_untimed(sealed: bool) -> None:
    machine = MadeMachine()
    machine.oracle.sealed = sealed
    found = exchange(machine)
    found.draw(2, timed=False)
    found.arm(found.contender)
    started = found.contender.go()
    assert found.await_done(found.contender, 1.0) - started == 200_000
    assert found.sealed is sealed
    assert found.contender.idle


@pytest.mark.parametrize("bears", [True, False])
def test_batch_ends_when_its_last_process_was_stopped(bears: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MadeMachine(kernel=MadeKernel(bears_processes=bears))
    found = exchange(machine)
    world = found.contender
    world.tell(messages.LoadKernel("kernel.py", ""))
    found.await_all(world, Kind.LOADED, 10.0)
    found.draw(2, timed=False)
    found.arm(world)
    told: list[Any] = []

    def later(stop: Callable[[], Any]) -> Any:
        machine.clock.sleep(0.5)  # finding and stopping processes takes time
        told.append((machine.clock.perf_counter_ns(), machine.ranks(found.oracle).orders[-1].kind))
        return stop()

    for name in ("halt", "pause"):
        monkeypatch.setattr(world.processes, name, partial(later, getattr(world.processes, name)))
    monkeypatch.setattr(world.processes, "meter", lambda: told.append("meter"))
    world.go()
    ended = found.await_done(world, 10.0, stops=True, copied=(0, 2))
    (halted, _), (paused, last) = told[::2]
    assert told[1] == "meter"  # work from then on is late
    assert ended == (paused if bears else halted)
    assert last is Kind.TAKE  # a system call that writes to outputs goes on until it returns


def test_clock_of_batch_starts_before_its_world(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MadeMachine()
    found = exchange(machine)
    found.draw(2, timed=False)
    found.arm(found.contender)
    order: list[str] = []
    for owner, name in (
        (found.contender.wires, "require_silence"),
        (machine.clock, "perf_counter_ns"),
        (found.contender.wires, "release"),
        (found.contender.processes, "resume"),
    ):
        call = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *_, name=name, call=call: (order.append(name), call())[1])
    found.contender.go()
    assert order == ["require_silence", "perf_counter_ns", "release", "resume"]


def test_discarding_compares_nothing_on_any_side() -> None:
    machine = MadeMachine()
    found = exchange(machine)
    found.sides = [CONTENDER, REFERENCE]
    found.discard_outputs()
    last = machine.ranks(found.oracle).orders[-2:]
    assert [(o.slots, o.side) for o in last if isinstance(o, messages.CompareOutputs)] == [
        ([], CONTENDER),
        ([], REFERENCE),
    ]


def test_first_failing_rank_decides_and_all_are_shown() -> None:
    machine = MadeMachine()
    found = exchange(machine)
    found.phase = "check"
    machine.oracle.finding = lambda rank, order, slot: (
        right() if rank == 0 else wrong(Verdict.NONFINITE if slot else Verdict.WRONG_RESULT)
    )
    verdict, failure = found.compare([0, 1])
    assert verdict is Verdict.WRONG_RESULT
    assert failure.rank == 1
    assert [(event.rank, event.ok) for event in machine.of(RankChecked)] == [(0, True), (1, False)]


def test_while_timing_only_failures_are_shown() -> None:
    machine = MadeMachine()
    found = exchange(machine)
    found.phase = "time"
    assert found.compare([0]) == (Verdict.PASS, None)
    assert machine.of(RankChecked) == []
    assert found.paper is True
    machine.oracle.finding = lambda rank, order, slot: wrong() if rank == 1 else right()
    found.compare([0])
    assert [(event.rank, event.ok) for event in machine.of(RankChecked)] == [(1, False)]


def test_a_second_look_keeps_no_figures() -> None:
    found = exchange(MadeMachine())
    found.compare([0], note=False)
    assert (found.findings, found.paper) == ({}, None)


def test_worst_figures_of_output_are_kept() -> None:
    found = exchange(MadeMachine())

    def kept() -> OutputError:
        return found.findings[0]["out"]

    for rms in (0.2, 0.5, 0.3):
        found.note(0, [figures(rms=rms)], paper=True)
    assert kept().rms == 0.5
    found.note(0, [figures(ok=False, rms=0.1)], paper=True)
    assert (kept().ok, kept().rms) == (False, 0.1)
    found.note(0, [figures(rms=0.9)], paper=False)
    assert (kept().ok, found.paper) == (False, False)
    found.note(0, [figures()], paper=True)
    assert found.paper is False
