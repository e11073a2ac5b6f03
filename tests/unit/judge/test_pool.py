"""The spares of the pool, on made worlds: when they are started, which one is taken, and what becomes of a contender."""

import os
import shutil
from pathlib import Path

import pytest
from made_kernels import Fault, MadeKernel
from made_machine import PROBLEM, MadeMachine

from sandbox.protocol.events import Setting, WorldChanged
from sandbox.protocol.frames import Kind
from sandbox.referee.awaiting import Stopped
from sandbox.worlds.failures import HarnessFailed
from sandbox.worlds.opening import has_open
from sandbox.worlds.pool import SPARES, Worlds
from sandbox.worlds.state import State


def tend(machine: MadeMachine, pool: Worlds, seconds: float = 3.0) -> None:
    """What the referee does while nothing runs."""
    until = machine.clock.monotonic() + seconds
    while machine.clock.monotonic() < until:
        machine.poll(0.1)
        pool.tend_spares()


def roles(machine: MadeMachine, state: str) -> list[str]:
    return [event.role for event in machine.of(WorldChanged) if event.state == state]


# --- spares --------------------------------------------------------------------------------------------------


def test_spares_get_ready_one_after_the_other_while_nothing_runs() -> None:
    machine = MadeMachine()
    pool = machine.pool()
    pool.tend_spares()
    assert pool.spares == []
    pool.prepare_spare(machine.setting())
    pool.prepare_spare(machine.setting())
    assert len(pool.spares) == 1
    tend(machine, pool)
    assert len(pool.spares) == SPARES
    assert all(has_open(world, machine.setting()) for world in pool.spares)
    assert roles(machine, "ready") == ["spare", "spare"]
    assert [event.seconds for event in machine.of(WorldChanged) if event.state == "ready"] == [
        pytest.approx(0.6, abs=0.2)
    ] * 2


def test_a_spare_that_is_open_is_taken_before_an_older_one_that_is_not() -> None:
    machine = MadeMachine()
    pool, setting = machine.pool(), machine.setting()
    pool.prepare_spare(setting)
    tend(machine, pool, 0.65)
    assert [world.state for world in pool.spares] == [State.OPENED, State.STARTING]
    pool.spares.reverse()
    taken = pool.take_spare(setting)
    assert taken.state is State.OPENED
    assert pool.contender is taken
    assert [world.state for world in pool.spares] == [State.STARTING]


def test_without_a_spare_a_world_is_started_and_opened() -> None:
    machine = MadeMachine()
    pool = machine.pool()
    assert has_open(pool.take_spare(machine.setting()), machine.setting())
    assert pool.spares == []


@pytest.mark.parametrize("change", [{"world": 3}, {"device": "made-gpu"}])
def test_spares_that_do_not_fit_a_setting_are_ended(change: dict[str, object]) -> None:
    machine = MadeMachine()
    pool = machine.pool()
    pool.prepare_spare(machine.setting())
    tend(machine, pool)
    old = list(pool.spares)
    pool.prepare_spare(machine.setting(**change))
    assert all(world.state is State.DEAD for world in old)
    assert len(pool.spares) == 1


def test_a_spare_of_another_size_of_the_same_problem_is_opened_anew() -> None:
    machine = MadeMachine()
    pool = machine.pool()
    pool.prepare_spare(machine.setting())
    tend(machine, pool)
    first = pool.spares[0]
    other = machine.setting(sizes={"M": 64, "N": 64})
    assert pool.take_spare(other) is first
    assert has_open(first, other)


def own_problem(machine: MadeMachine, folder: Path) -> Setting:
    shutil.copytree(PROBLEM, folder)
    return machine.setting(problem_dir=str(folder))


def test_a_problem_of_the_users_own_is_readable_and_opened_anew_when_its_files_change(tmp_path: Path) -> None:
    machine = MadeMachine()
    pool = machine.pool()
    setting = own_problem(machine, tmp_path / "mine")
    pool.prepare_spare(machine.setting())
    stranger = pool.spares[0]
    world = pool.take_spare(setting)
    assert stranger.state is State.DEAD
    assert world.spec.readable == (tmp_path / "mine",)
    stage = pool.prepare_stage(setting)
    assert pool.has_stage(setting)
    os.utime(tmp_path / "mine" / "baseline.py", ns=(1, 1))
    assert not has_open(world, setting)
    assert not pool.has_stage(setting)
    assert pool.prepare_stage(setting) is not stage


@pytest.mark.parametrize("order", [Kind.READY, Kind.OPEN])
def test_a_spare_that_fails_is_dropped_and_no_run_hears_of_it(order: Kind) -> None:
    machine = MadeMachine()
    machine.faults["spare"] = [[Fault(order, Kind.LOAD_FAILED, text="no torch")]]
    pool = machine.pool()
    pool.prepare_spare(machine.setting())
    tend(machine, pool)
    assert pool.spares == []
    assert has_open(pool.take_spare(machine.setting()), machine.setting())


def test_one_spare_is_enough_where_there_is_no_room_for_two() -> None:
    machine = MadeMachine()
    machine.room = 1
    pool = machine.pool()
    pool.prepare_spare(machine.setting())
    tend(machine, pool)
    assert len(pool.spares) == 1


def test_no_room_for_a_first_one_is_the_harnesss_fault() -> None:
    machine = MadeMachine()
    machine.room = 0
    with pytest.raises(HarnessFailed, match="cannot start the spare world: no room"):
        machine.pool().take_spare(machine.setting())


def test_a_spare_whose_opening_was_asked_for_by_a_cancelled_run_is_heard_out() -> None:
    machine = MadeMachine()
    pool, setting = machine.pool(), machine.setting()
    pool.prepare_spare(setting)
    machine.stop = True
    with pytest.raises(Stopped):
        pool.take_spare(setting)
    machine.stop = False
    tend(machine, pool, 0.45)
    assert pool.spares[0].state is State.OPENING
    other = machine.setting(sizes={"M": 64, "N": 64})
    assert has_open(pool.take_spare(other), other)


def test_two_contenders_are_two_worlds_and_both_end_with_their_run() -> None:
    machine = MadeMachine()
    pool, setting = machine.pool(), machine.setting()
    rival, contender = pool.take_rival(setting), pool.take_spare(setting)
    assert (pool.rival, pool.contender) == (rival, contender)
    assert rival is not contender
    pool.end_contender()
    assert rival.state is contender.state is State.DEAD
    assert (pool.rival, pool.contender) == (None, None)
    assert roles(machine, "gone") == ["contender", "rival"]
    pool.end_contender()


def test_a_contender_that_ran_the_baseline_is_kept_as_a_spare_while_there_is_room_for_it() -> None:
    machine = MadeMachine()
    pool, setting = machine.pool(), machine.setting()
    world = pool.take_spare(setting)
    world.pause()
    pool.keep_contender()
    assert pool.spares == [world]
    assert not world.paused
    assert pool.contender is None
    pool.keep_contender()
    assert pool.take_spare(setting) is world
    machine.ranks(world).kernel = MadeKernel(excess="too much")
    world.check_memory()
    pool.keep_contender()
    assert pool.spares == []


def test_closing_ends_every_world() -> None:
    machine = MadeMachine()
    pool, setting = machine.pool(), machine.setting()
    stage = pool.prepare_stage(setting, 2)
    pool.take_references(stage, setting, 2)
    pool.take_rival(setting)
    pool.take_spare(setting)
    pool.prepare_spare(setting)
    pool.close()
    started = [world for worlds in machine.started.values() for world in worlds]
    assert len(started) == 6
    assert all(world.state is State.DEAD and machine.processes(world).closed for world in started)
