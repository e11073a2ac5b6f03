"""The oracle world and the references, on simulated worlds: what happens to them after a run, a cancel and a kill."""

import itertools

import pytest
from made_kernels import Fault, MadeKernel, MadeOracle
from made_machine import MadeCpu, MadeGpu, MadeMachine, Pool

from sandbox.machine.devices.kind import DISTINCT_SECONDS
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import CheckPoison, ChooseBatch, CompareOutputs, LoadKernel, Reveal
from sandbox.worlds import deadlines
from sandbox.worlds.exchange import REFERENCE
from sandbox.worlds.failures import HarnessFailed
from sandbox.worlds.references import LEVEL_CALLS
from sandbox.worlds.world import State

# --- prepared settings ---------------------------------------------------------------------------------------


def test_stage_keeps_measured_slots_and_limits() -> None:
    machine = MadeMachine()
    machine.oracle.seconds = 0.01
    pool, setting = machine.pool(), machine.setting()
    stage = pool.oracle.prepare(setting)
    assert (stage.layout.in_bytes, stage.layout.room, stage.layout.sealed) == (1024, 4, True)
    assert stage.layout.slots == MadeCpu.pace.slots
    assert stage.calls == 1
    assert stage.limits.first_call == 10.0
    assert pool.oracle.prepare(setting) is stage
    assert pool.oracle.prepare(machine.setting(dtype="float32")) is not stage
    assert len(machine.started["baseline"]) == 1


def test_neediest_rank_decides_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, small, large = MadeMachine(), 1 << 10, 1 << 11
    by_rank = {"references": [3, 1], "seconds": [1e-3, 2e-3], "sealed": [True, False], "varies": [False, True]}
    for name, found in (by_rank | {"in_bytes": [small, large], "out_bytes": [small, large]}).items():
        each = itertools.cycle(found)
        monkeypatch.setattr(MadeOracle, name, property(lambda _, each=each: next(each)))
    prepared = machine.pool().oracle.prepare(machine.setting())
    assert (prepared.most_references, prepared.call_seconds, prepared.varies) == (1, 2e-3, True)
    assert (prepared.layout.in_bytes, prepared.layout.out_bytes, prepared.layout.sealed) == (large, large, False)


def test_unsealed_arenas_are_smaller_where_kind_says_so() -> None:
    sizes = []
    for sealed in (True, False):
        machine = MadeMachine("made-gpu")
        machine.oracle.sealed = sealed
        machine.oracle.in_bytes = 16 << 20
        sizes.append(machine.pool().oracle.prepare(machine.setting()).layout.slots)
    assert sizes == [MadeGpu.arena_bytes[0] // ((16 << 20) + 1024), MadeGpu.unsealed_arena_bytes // ((16 << 20) + 1024)]


def test_baseline_with_failed_probe_is_not_reused() -> None:
    machine = MadeMachine()
    machine.oracle.faults.append(Fault(Kind.MEASURE_BASELINE, Kind.BROKEN, text="no", times=1))
    pool = machine.pool()
    with pytest.raises(HarnessFailed, match="no"):
        pool.oracle.prepare(machine.setting())
    assert pool.oracle.world is None
    assert pool.oracle.prepare(machine.setting()).world is machine.started["baseline"][1]


def test_another_number_of_ranks_needs_another_trusted_world() -> None:
    machine = MadeMachine()
    pool = machine.pool()
    first = pool.oracle.prepare(machine.setting()).world
    second = pool.oracle.prepare(machine.setting(world=3)).world
    assert first.state is State.DEAD
    assert second.ranks == 3


# --- references ----------------------------------------------------------------------------------------------


def test_references_load_once_and_make_untimed_first_calls() -> None:
    machine = MadeMachine()
    pool, setting = machine.pool(), machine.setting()
    stage = pool.prepare(setting, 2)
    worlds = pool.references.take(stage, setting, 2)
    assert pool.references.are_loaded(pool.oracle.prepared, 2)
    assert not pool.references.are_loaded(pool.oracle.prepared, 3)
    assert pool.references.take(stage, setting, 2) == worlds
    for world in worlds:
        orders = machine.ranks(world).orders
        assert sum(isinstance(order, LoadKernel) for order in orders) == 1
        assert [order.warm for order in orders if isinstance(order, ChooseBatch)] == [50]


def test_references_leave_last_problem_before_oracle_opens_next() -> None:
    machine = MadeMachine()
    pool, setting, other = machine.pool(), machine.setting(), machine.setting(dtype="float32")
    worlds = list(pool.references.take(pool.prepare(setting, 2), setting, 2))
    pool.references.leave_other_problems(setting)
    assert pool.references.are_loaded(pool.oracle.prepared, 2)
    pool.references.leave_other_problems(other)
    assert not pool.references.are_loaded(pool.oracle.prepared, 2)
    assert all(world.has_open(other) for world in worlds)
    assert pool.oracle.is_prepared(setting)
    pool.oracle.drop()
    assert not pool.oracle.is_prepared(setting)


def test_worlds_across_runs_are_replaced_after_some_problems() -> None:
    machine = MadeMachine()
    pool, settings = machine.pool(), [machine.setting(dtype=dtype) for dtype in ("bfloat16", "float32")]
    limit = MadeCpu.pace.problems
    for number in range(2 * limit):
        setting = settings[number % 2]
        for _ in range(2):  # the same problem again opens nothing
            worlds = pool.references.take(pool.prepare(setting, 2), setting, 2)
        assert all(world.problems == number % limit + 1 for world in worlds)
    assert len(machine.started["baseline"]) == 2
    assert len(machine.started["reference"]) == 4
    assert all(world.state is State.DEAD for world in machine.started["reference"][:2])


def test_short_memory_runs_fewer_references_and_ends_others() -> None:
    machine = MadeMachine()
    machine.oracle.references = 2
    pool, setting = machine.pool(), machine.setting()
    stage = pool.prepare(setting, 4)
    started = list(pool.references.worlds)
    assert len(started) == 4
    assert len(pool.references.take(stage, setting, 1)) == 1
    assert pool.references.take(stage, setting, 4) == pool.references.worlds == started[:2]
    assert [world.state is State.DEAD for world in started] == [False, False, True, True]
    assert pool.references.are_loaded(pool.oracle.prepared, 4)


@pytest.mark.parametrize(("sealed", "times", "made"), [(True, [1.0, 1.0], 2), (False, [4.0, 2.0, 1.95], 3)])
def test_references_call_on_new_inputs_until_level(sealed: bool, times: list[float], made: int) -> None:
    begun, batches = itertools.count(), 2 if sealed else 6  # LEVEL_CALLS of two worlds
    machine = MadeMachine("made-gpu", reference=MadeKernel(lambda calls: 100.0 * calls * times[next(begun) // batches]))
    machine.oracle.varies, machine.oracle.sealed = True, sealed
    machine.oracle.in_bytes = machine.oracle.out_bytes = MadeGpu.unsealed_arena_bytes // 20
    pool, setting = machine.pool(), machine.setting()
    stage = pool.prepare(setting, 2)
    ran = 1
    for world in pool.references.take(stage, setting, 2):
        assert world.state is State.ARMED
        chosen = [order for order in machine.ranks(world).orders if isinstance(order, ChooseBatch)]
        assert (chosen[0].count, chosen[0].warm) == (1, 50)
        assert all(order.warm == 0 and order.count <= stage.layout.slots for order in chosen[1:])
        assert sum(order.count for order in chosen[1:]) == stage.distinct_calls == made * LEVEL_CALLS
        ran += len(chosen) - 1
    orders = machine.ranks(stage.world).orders
    last = [order for order in orders if isinstance(order, CompareOutputs)][-1]
    assert (last.slots, last.side) == ([], REFERENCE)  # the outputs are poisoned again
    assert sum(isinstance(order, Reveal) for order in orders) == ran  # a world may have changed its inputs in place


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("varies", [False, True])
def test_references_are_renewed_after_runs_with_differing_shapes(varies: bool, idle: bool) -> None:
    machine = MadeMachine()
    machine.oracle.varies = varies
    pool, setting = machine.pool(), machine.setting()
    before = pool.references.take(pool.prepare(setting, 2), setting, 2)
    pool.references.note_run(pool.oracle.prepared, setting)
    assert pool.references.are_loaded(pool.oracle.prepared, 2) != varies
    if idle:
        pool.references.renew()
    else:
        pool.references.take(pool.oracle.prepare(setting), setting, 2)
    assert [world.state is State.DEAD for world in before] == [varies] * 2
    assert len(pool.references.worlds) == 2


def test_another_setting_takes_references_whose_shapes_differed() -> None:
    machine = MadeMachine()
    machine.oracle.varies, machine.oracle.seconds = True, 0.1
    pool, setting, other = machine.pool(), machine.setting(), machine.setting(sizes={"M": 64, "N": 64})
    before = list(pool.references.take(pool.prepare(setting, 2), setting, 2))
    assert pool.oracle.prepare(setting).distinct_calls == int(DISTINCT_SECONDS / 0.1)
    pool.references.note_run(pool.oracle.prepared, setting)
    for world in before:
        world.processes.pause()
    assert pool.references.take(pool.prepare(other, 2), other, 2) == before
    assert pool.references.are_loaded(pool.oracle.prepared, 2)
    assert sum(isinstance(order, LoadKernel) for order in machine.ranks(before[0]).orders) == 2
    pool.references.renew()
    assert pool.references.worlds == before


def test_references_that_failed_or_misfit_are_replaced() -> None:
    machine = MadeMachine()
    pool, setting = machine.pool(), machine.setting()
    stage = pool.prepare(setting, 2)
    first, second = pool.references.take(stage, setting, 2)
    machine.ranks(first).kernel = MadeKernel(excess="too much")
    first.check_memory()
    third = pool.references.take(stage, setting, 2)
    assert first.state is State.DEAD
    assert third == [second, machine.started["reference"][2]]
    other = machine.setting(world=3)
    pool.references.take(pool.prepare(other, 2), other, 2)
    assert second.state is State.DEAD
    assert len(machine.started["reference"]) == 5


def test_after_early_end_resting_and_starting_references_stay() -> None:
    machine = MadeMachine()
    pool, setting = machine.pool(), machine.setting()
    resting, running, queued = pool.references.take(pool.prepare(setting, 3), setting, 3)
    queued.state = State.QUEUED
    for world in (resting, queued):
        world.processes.pause()
    pool.references.start(setting, 4)
    pool.references.drop_busy()
    assert pool.references.worlds == [resting, machine.started["reference"][3]]
    assert running.state is queued.state is State.DEAD
    assert not pool.references.are_loaded(pool.oracle.prepared, 1)
    pool.references.drop()
    assert pool.references.worlds == []


# --- after a cancel, after a kill ----------------------------------------------------------------------------


def test_trusted_world_that_answers_is_kept_after_cancel() -> None:
    machine = MadeMachine()
    pool = machine.pool()
    pool.oracle.finish_orders(machine.poll)
    world = pool.oracle.prepare(machine.setting()).world
    world.tell(CheckPoison([0]))
    pool.oracle.finish_orders(machine.poll)
    assert pool.oracle.world is world
    assert world.idle
    assert machine.ranks(world).missing(Kind.CHECK_POISON, str) == [0, 1]


@pytest.mark.parametrize("fault", [Fault(Kind.SYNC), Fault(Kind.SYNC, status=9)])
def test_silent_trusted_world_is_replaced_after_cancel(fault: Fault) -> None:
    machine = MadeMachine()
    machine.oracle.faults.append(fault)
    pool = machine.pool()
    world = pool.oracle.prepare(machine.setting()).world
    before = machine.clock.monotonic()
    pool.oracle.finish_orders(machine.poll)
    assert world.state is State.DEAD
    assert (pool.oracle.world, pool.oracle.prepared) == (None, None)
    assert machine.clock.monotonic() - before < 2.1


def with_contender(device: str, *faults: Fault) -> tuple[MadeMachine, Pool]:
    """A machine with a prepared setting and a contender that a run has taken. faults: of the oracle world."""
    machine = MadeMachine(device)
    machine.oracle.faults += faults
    pool, setting = machine.pool(), machine.setting()
    pool.oracle.prepare(setting)
    pool.contenders.take(setting)
    return machine, pool


def test_baseline_must_still_compute_after_device_kill(gpu: MadeGpu) -> None:
    for complaint in ("", "GPU 0 asks for a reset"):
        machine, pool = with_contender("made-gpu")
        gpu.complaint = complaint
        assert not pool.oracle.current_gpu_fault()
        pool.end_run()
        assert pool.oracle.world is not None
        assert (machine.ranks(pool.oracle.world).orders[-1].kind is Kind.WAKE) is not bool(complaint)
        assert pool.oracle.current_gpu_fault() == complaint
    gpu.complaint = ""
    assert pool.oracle.current_gpu_fault() == ""


def test_baseline_broken_by_kill_is_replaced() -> None:
    machine, pool = with_contender("made-gpu", Fault(Kind.WAKE, ranks=(0, 1)))
    before = machine.clock.monotonic()
    pool.end_run()
    assert pool.oracle.world is None
    assert machine.clock.monotonic() - before == pytest.approx(deadlines.HEALTH, abs=0.5)


def test_killed_cpu_kernel_leaves_nothing_to_examine() -> None:
    _, pool = with_contender("made-cpu")
    pool.end_run()
    assert pool.oracle.killed is None
