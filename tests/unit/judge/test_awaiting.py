"""Waiting for the ranks of simulated worlds: answers, failures and deadlines, with a kernel and without one."""

import os
import selectors
from contextlib import nullcontext

import pytest
from made_clock import MadeClock
from made_kernels import Fault, MadeKernel
from made_machine import MadeMachine, Pool

from sandbox.protocol import events
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import LoadKernel, MakeArenas, Wake
from sandbox.referee import awaiting
from sandbox.referee.awaiting import Awaiting, EnginePipe, SettingRefused, Stopped
from sandbox.worlds.deadlines import COMPILE, WITHOUT_CORE
from sandbox.worlds.exchange import PreparedSetting
from sandbox.worlds.failures import Deadline, HarnessFailed, WorldFailed
from sandbox.worlds.world import World


def opened(machine: MadeMachine) -> tuple[Pool, PreparedSetting, World]:
    pool, setting = machine.pool(), machine.setting()
    return pool, pool.prepare(setting, 1), pool.contenders.take(setting)


def loading(kernel: MadeKernel) -> tuple[MadeMachine, World]:
    machine = MadeMachine(kernel=kernel)
    _, _, world = opened(machine)
    world.tell(LoadKernel("kernel.py", ""))
    return machine, world


def test_contenders_failure_and_its_deadline_are_its_own() -> None:
    machine, world = loading(MadeKernel(faults=[Fault(Kind.LOAD, Kind.RAISED, ranks=(1,), text="oh")]))
    with pytest.raises(WorldFailed, match="rank 1: RAISED oh"):
        machine.await_all(world, Kind.LOADED, 1.0)
    machine, world = loading(MadeKernel(faults=[Fault(Kind.LOAD, ranks=(1,))]))
    before = machine.clock.monotonic()
    with pytest.raises(Deadline) as late:
        machine.await_all(world, Kind.LOADED, 1.0)
    assert late.value.ranks == [1]
    assert machine.clock.monotonic() - before == pytest.approx(1.0, abs=0.26)


@pytest.mark.parametrize(
    ("without_core", "seconds"), [(0.5, 1.5), (0.8, 3.0), (1.0, 1.0 + WITHOUT_CORE)], ids=["half", "most", "all"]
)
def test_time_without_core_does_not_count_to_limit(without_core: float, seconds: float) -> None:
    machine, world = loading(MadeKernel(without_core=without_core, faults=[Fault(Kind.LOAD, ranks=(1,))]))
    before = machine.clock.monotonic()
    with pytest.raises(Deadline):
        machine.await_all(world, Kind.LOADED, 1.0)
    assert machine.clock.monotonic() - before == pytest.approx(seconds, abs=0.26)


@pytest.mark.parametrize(
    ("outside", "kernel", "error"),
    [
        (0.95, MadeKernel(without_core=0.95), HarnessFailed),
        (0.95, MadeKernel(without_core=0.3), Deadline),
        (0.3, MadeKernel(without_core=0.95), Deadline),
        (0.95, MadeKernel(without_core=0.95, gives_way=True), Deadline),
    ],
    ids=["busy machine", "kernel that hangs there", "kernel that takes its own cores", "kernel that yields its cores"],
)
def test_only_a_busy_machine_excuses_ranks(outside: float, kernel: MadeKernel, error: type[Exception]) -> None:
    kernel.faults.append(Fault(Kind.LOAD, ranks=(1,)))
    machine, world = loading(kernel)
    machine.outside_share = outside
    with pytest.raises(error):
        machine.await_all(world, Kind.LOADED, 4.0)


def test_second_half_begins_when_referee_has_core() -> None:
    machine, world = loading(MadeKernel(without_core=0.95, faults=[Fault(Kind.LOAD, ranks=(1,))]))
    machine.outside_share = 0.95
    first = iter([5.0])

    def poll(seconds: float) -> None:
        machine.clock.sleep(next(first, seconds))

    with pytest.raises(HarnessFailed, match="too busy"):
        Awaiting(poll, lambda kind: False, machine.clock, machine.outside)(world, Kind.LOADED, 4.0)


def test_answer_that_was_not_due_breaks_protocol() -> None:
    machine, world = loading(MadeKernel())
    with pytest.raises(WorldFailed, match="sent LOADED where ARMED was due"):
        machine.await_all(world, Kind.ARMED, 1.0)


@pytest.mark.parametrize(
    ("compile_s", "limit", "late"), [(60.0, 1.0, False), (COMPILE - 1, 1.0, False), (COMPILE + 5, 1.0, True)]
)
def test_compiling_does_not_count_up_to_its_limit(compile_s: float, limit: float, late: bool) -> None:
    machine, world = loading(MadeKernel(compile_s=compile_s))
    before = machine.clock.monotonic()
    if late:
        with pytest.raises(Deadline):
            machine.await_all(world, Kind.LOADED, limit)
        assert machine.clock.monotonic() - before < COMPILE + limit + 1.0
    else:
        assert machine.await_all(world, Kind.LOADED, limit)


@pytest.mark.parametrize("long", [True, False])
def test_memory_is_looked_up_in_long_waits(long: bool) -> None:
    machine, world = loading(MadeKernel(excess="holds 9 GiB", faults=[Fault(Kind.LOAD)] * long))
    with pytest.raises(WorldFailed, match="NO_MEMORY holds 9 GiB") if long else nullcontext():
        assert machine.await_all(world, Kind.LOADED, 10.0)


@pytest.mark.parametrize("role", ["baseline", "reference"])
def test_faults_without_a_kernel_are_harness_errors(role: str) -> None:
    machine = MadeMachine()
    machine.faults["reference"] = [[Fault(Kind.WAKE, Kind.BROKEN, text="no", times=1), Fault(Kind.WAKE)]]
    machine.oracle.faults += [Fault(Kind.WAKE, Kind.BROKEN, text="no", times=1), Fault(Kind.WAKE)]
    pool, stage, _ = opened(machine)
    worlds = {"baseline": stage.world, "reference": pool.references.take(stage, machine.setting(), 1)[0]}
    world = worlds[role]
    machine.ranks(world).said[0] = "what it printed"
    world.tell(Wake())
    with pytest.raises(HarnessFailed, match=r"BROKEN no\n(.|\n)*what it printed"):
        machine.await_all(world, Kind.AWAKE, 1.0)


def test_late_world_without_kernel_is_harness_error() -> None:
    machine = MadeMachine()
    machine.oracle.faults.append(Fault(Kind.WAKE, ranks=(0, 1)))
    _, stage, _ = opened(machine)
    stage.world.tell(Wake())
    with pytest.raises(HarnessFailed, match=r"ranks \[0, 1\] of the oracle world did not answer within 1 s"):
        machine.await_all(stage.world, Kind.AWAKE, 1.0)
    with pytest.raises(Deadline):
        machine.await_all(stage.world, Kind.AWAKE, 1.0, may_be_late=True)


def test_setting_that_problem_refuses_is_no_failure() -> None:
    machine = MadeMachine()
    machine.oracle.faults.append(Fault(Kind.OPEN, Kind.REFUSED, text="M must be even"))
    with pytest.raises(SettingRefused, match="M must be even"):
        opened(machine)


def test_nobody_waits_on_once_the_run_is_cancelled() -> None:
    machine = MadeMachine()
    _, stage, _ = opened(machine)
    stage.world.tell(MakeArenas(stage.layout, own=True, side=0))
    machine.stop = True
    with pytest.raises(Stopped):
        machine.await_all(stage.world, Kind.MAKE_ARENAS, 1.0)


def test_commands_come_in_whatever_pieces(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    ours, theirs = os.pipe()
    monkeypatch.setattr(awaiting, "STDIN", ours)
    pipe = EnginePipe(selectors.DefaultSelector(), MadeClock())
    pipe.open()
    command = events.Warm(setting=MadeMachine().setting())
    line = events.encode(command) + b"\n"
    for part in (line[:9], line[9:] + b"nonsense\n\n" + line[:-1]):
        os.write(theirs, part)
        pipe.selector.select(0)[0][0].data()
    assert ([*pipe.commands], pipe.stopped()) == ([command], False)
    assert [type(events.decode_event(each)) for each in capfdbinary.readouterr().out.splitlines()] == [events.Fatal]
    os.close(theirs)
    pipe.selector.select(0)[0][0].data()
    assert (pipe.stopped(), [*pipe.selector.get_map()]) == (True, [])
