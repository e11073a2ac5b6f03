"""The contenders, on simulated worlds: when they start, which one a run takes, and what happens to it."""

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from made_kernels import Fault, MadeKernel
from made_machine import PROBLEM, MadeGpu, MadeMachine, Pool

from sandbox.machine import kernel_cache
from sandbox.protocol.events import Setting, WorldChanged
from sandbox.protocol.frames import Kind
from sandbox.referee.awaiting import Stopped
from sandbox.worlds.contenders import SPARES
from sandbox.worlds.first_process import started, wrapped_for
from sandbox.worlds.world import State
from sandbox.worlds.world_process import WorldProcess


def tend(machine: MadeMachine, pool: Pool, seconds: float = 3.0) -> None:
    """Tends the spares for some seconds, as the referee does while nothing runs."""
    until = machine.clock.monotonic() + seconds
    while machine.clock.monotonic() < until:
        machine.poll(0.1)
        pool.contenders.tend_spares()


def roles(machine: MadeMachine, state: str) -> list[str]:
    return [event.role for event in machine.of(WorldChanged) if event.state == state]


# --- spares --------------------------------------------------------------------------------------------------


def test_spares_get_ready_one_by_one_while_idle() -> None:
    machine = MadeMachine()
    pool = machine.pool()
    pool.contenders.tend_spares()
    assert pool.contenders.spares == []
    pool.contenders.prepare_spare(machine.setting())
    pool.contenders.prepare_spare(machine.setting())
    assert len(pool.contenders.spares) == 1
    tend(machine, pool)
    assert len(pool.contenders.spares) == SPARES
    assert all(world.has_open(machine.setting()) for world in pool.contenders.spares)
    assert roles(machine, "ready") == ["spare", "spare"]
    assert [event.seconds for event in machine.of(WorldChanged) if event.state == "ready"] == [
        pytest.approx(0.6, abs=0.2)
    ] * 2
    pool.contenders.drop_spares()
    assert pool.contenders.spares == []


def test_open_spare_is_taken_before_older_one() -> None:
    machine = MadeMachine()
    pool, setting = machine.pool(), machine.setting()
    pool.contenders.prepare_spare(setting)
    tend(machine, pool, 0.65)
    assert [world.state for world in pool.contenders.spares] == [State.OPENED, State.STARTING]
    pool.contenders.spares.reverse()
    taken = pool.contenders.take(setting)
    assert taken.state is State.OPENED
    assert pool.contenders.contender is taken
    assert [world.state for world in pool.contenders.spares] == [State.STARTING]


def test_both_kernels_of_a_duel_start_at_once() -> None:
    machine = MadeMachine()
    pool, setting = machine.pool(), machine.setting()
    rival = pool.contenders.take_rival(setting)
    assert pool.contenders.take(setting).started == pytest.approx(rival.started, abs=0.1)


@pytest.mark.parametrize("on_gpus", [True, False])
def test_next_gpu_spare_starts_when_last_is_taken(on_gpus: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MadeGpu, "on_gpus", on_gpus)
    machine = MadeMachine("made-gpu")
    pool = machine.pool()
    taken = pool.contenders.take(machine.setting())
    assert [world.state for world in pool.contenders.spares] == [State.STARTING] * on_gpus
    assert taken not in pool.contenders.spares


@pytest.mark.parametrize("change", [{"world": 3}, {"device": "made-gpu"}])
def test_spares_that_do_not_fit_setting_are_ended(change: dict[str, object]) -> None:
    machine = MadeMachine()
    pool = machine.pool()
    pool.contenders.prepare_spare(machine.setting())
    tend(machine, pool)
    old = list(pool.contenders.spares)
    pool.contenders.prepare_spare(machine.setting(**change))
    assert all(world.state is State.DEAD for world in old)
    assert len(pool.contenders.spares) == 1


def test_spare_of_other_size_is_opened_anew() -> None:
    machine = MadeMachine()
    pool = machine.pool()
    pool.contenders.prepare_spare(machine.setting())
    tend(machine, pool)
    first = pool.contenders.spares[0]
    other = machine.setting(sizes={"M": 64, "N": 64})
    assert pool.contenders.take(other) is first
    assert first.has_open(other)


def own_problem(machine: MadeMachine, folder: Path) -> Setting:
    shutil.copytree(PROBLEM, folder)
    return machine.setting(problem_dir=str(folder))


def test_user_problem_is_readable_and_reopens_when_changed(tmp_path: Path) -> None:
    machine = MadeMachine()
    pool = machine.pool()
    setting = own_problem(machine, tmp_path / "mine")
    pool.contenders.prepare_spare(machine.setting())
    stranger = pool.contenders.spares[0]
    world = pool.contenders.take(setting)
    assert stranger.state is State.DEAD
    assert world.spec.readable == (tmp_path / "mine",)
    stage = pool.oracle.prepare(setting)
    assert pool.oracle.is_prepared(setting)
    os.utime(tmp_path / "mine" / "baseline.py", ns=(1, 1))
    assert not world.has_open(setting)
    assert not pool.oracle.is_prepared(setting)
    assert pool.oracle.prepare(setting) is not stage


@pytest.mark.parametrize("order", [Kind.READY, Kind.OPEN])
def test_failing_spare_is_dropped_silently(order: Kind) -> None:
    machine = MadeMachine()
    machine.faults["spare"] = [[Fault(order, Kind.LOAD_FAILED, text="no torch")]]
    pool = machine.pool()
    pool.contenders.prepare_spare(machine.setting())
    tend(machine, pool)
    assert pool.contenders.spares == []
    assert pool.contenders.take(machine.setting()).has_open(machine.setting())


def test_one_spare_is_enough_where_memory_is_short() -> None:
    machine = MadeMachine()
    machine.room = 1
    pool = machine.pool()
    pool.contenders.prepare_spare(machine.setting())
    tend(machine, pool)
    assert len(pool.contenders.spares) == 1


def test_opening_spare_of_cancelled_run_is_heard_out() -> None:
    machine = MadeMachine()
    pool, setting = machine.pool(), machine.setting()
    pool.contenders.prepare_spare(setting)
    machine.stop = True
    with pytest.raises(Stopped):
        pool.contenders.take(setting)
    machine.stop = False
    tend(machine, pool, 0.45)
    assert pool.contenders.spares[0].state is State.OPENING
    other = machine.setting(sizes={"M": 64, "N": 64})
    assert pool.contenders.take(other).has_open(other)


def test_two_contenders_are_two_worlds_and_both_end() -> None:
    machine = MadeMachine()
    pool, setting = machine.pool(), machine.setting()
    rival, contender = pool.contenders.take_rival(setting), pool.contenders.take(setting)
    assert (pool.contenders.rival, pool.contenders.contender) == (rival, contender)
    assert rival is not contender
    pool.end_run()
    assert rival.state is contender.state is State.DEAD
    assert (pool.contenders.rival, pool.contenders.contender) == (None, None)
    assert roles(machine, "gone") == ["contender", "rival"]
    pool.end_run()


def test_contender_of_baseline_becomes_spare_if_possible() -> None:
    machine = MadeMachine()
    pool, setting = machine.pool(), machine.setting()
    world = pool.contenders.take(setting)
    world.processes.pause()
    world.wires.watch_compiling(print)
    pool.contenders.keep()
    assert pool.contenders.spares == [world]
    assert not world.processes.paused
    assert pool.contenders.contender is None
    assert machine.ranks(world)._watch is None  # nobody hears of it as of the run's kernel
    pool.contenders.keep()
    assert pool.contenders.take(setting) is world
    machine.ranks(world).kernel = MadeKernel(excess="too much")
    world.check_memory()
    pool.contenders.keep()
    assert pool.contenders.spares == []


def test_unjailed_programs_have_users_cache_and_own_input(tmp_path: Path) -> None:
    machine, said = MadeMachine(), tmp_path / "said"
    machine.pool().contenders.prepare_spare(machine.setting())
    bound = cast(Any, SimpleNamespace(starts=lambda argv: argv))
    said.write_text("given\n")
    script = "cat; pwd; echo $PKB_KERNEL_CACHE $HOME; cut -d' ' -f6 /proc/$$/stat; echo no >&2; echo . > /proc/$$/fd/$0"
    with said.open("r+") as given:
        argv = ["/bin/sh", "-c", script, str(given.fileno())]
        with wrapped_for(machine.started["spare"][0].spec, argv, tmp_path) as wrapped:
            wrapped.env["HOME"] = "nobody's"
            fds = given.fileno(), subprocess.PIPE, subprocess.PIPE, [given.fileno()]
            process = started(bound, wrapped, tmp_path, *fds)
        found = f"given\n{tmp_path}\n{kernel_cache.prepared()} nobody's\n{process.pid}\n"  # it leads a session
        assert process.communicate() == (found.encode(), b"no\n")
    assert said.read_text() == ".\n"


@pytest.mark.parametrize(("jail", "kept"), [("none", []), ("full", [(7, "digest")])])
def test_jailed_worlds_artefacts_are_kept(jail: str, kept: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    harvested: list[Any] = []
    monkeypatch.setattr(kernel_cache, "harvest", lambda pid, folder, digest: harvested.append((pid, digest)))
    profile = SimpleNamespace(inside=lambda path: path)
    spec = SimpleNamespace(trusted=False, jail=SimpleNamespace(name=jail, profile=profile))
    world = SimpleNamespace(
        _spec=spec, _first=SimpleNamespace(tree=lambda: [1, 5, 7]), _folder=SimpleNamespace(path="x")
    )
    WorldProcess.keep_compiled(world, "digest")  # type: ignore[arg-type]
    assert harvested == kept
