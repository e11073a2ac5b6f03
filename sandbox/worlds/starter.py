"""Starts, opens and ends worlds of any role, and reports each change as an event."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.jail.choice import Jail
from sandbox.jail.profiles import SOURCE_ROOT
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Setting, WorldChanged
from sandbox.protocol.frames import Kind
from sandbox.protocol.launch_plan import Role
from sandbox.worlds import deadlines
from sandbox.worlds.deadlines import TimeSource
from sandbox.worlds.exchange import AwaitAll
from sandbox.worlds.failures import HarnessFailed
from sandbox.worlds.first_process import WorldSpec
from sandbox.worlds.world import State, World


@dataclass(eq=False)
class WorldStarter:
    """Starts worlds in the jail of this machine, and ends them.

    A world starts as the oracle world, a reference or a spare. A spare that a run takes ends as its contender or rival.
    """

    jail: Jail
    start_processes: Callable[[WorldSpec], World]
    """Starts a world. Raises OSError if the machine is out of processes, descriptors or memory."""
    await_all: AwaitAll
    emit: Callable[[Any], None]
    timer: TimeSource = time

    def start(self, role: Role, setting: Setting) -> World:
        """Starts a world's processes; returns before they are ready.

        Raises:
            HarnessFailed: the machine is out of processes, descriptors or memory.
        """
        kind = kind_of(setting.device)
        spec = WorldSpec(
            ranks=setting.world,
            kind=kind,
            trusted=role is Role.ORACLE,
            jail=self.jail,
            readable=readable(setting),
            gpus=kind.gpus(setting.world),
            kernel=role is Role.SPARE,
        )
        try:
            world = self.start_processes(spec)
        except OSError as error:
            raise HarnessFailed(f"cannot start the {role.words} world: {error}") from error
        self.emit(WorldChanged(role=role, state="starting", world=world.ranks))
        return world

    def end(self, world: World, role: Role) -> None:
        """Kills a world."""
        world.close()
        self.emit(WorldChanged(role=role, state="gone", world=world.ranks))

    def open_problem(self, worlds: Sequence[World], setting: Setting, role: Role) -> None:
        """Opens the problem in all of these worlds at the same time, and waits until it is open."""
        for world in worlds:
            if world.state is State.STARTING:
                self.await_all(world, Kind.READY, deadlines.START)
            if world.state is State.OPENING and not world.opens(setting):  # another run has asked for it
                self.await_all(world, Kind.OPENED, deadlines.START)
            if world.state is not State.OPENING and not world.has_open(setting):
                world.open(setting)
        for world in worlds:
            if world.state is State.OPENING:
                self.await_all(world, Kind.OPENED, deadlines.START)
                self.report_ready(world, role)

    def report_ready(self, world: World, role: Role) -> None:
        """Reports that a world has its problem open."""
        seconds = self.timer.monotonic() - world.started
        self.emit(WorldChanged(role=role, state="ready", world=world.ranks, seconds=seconds))


def readable(setting: Setting) -> tuple[Path, ...]:
    """The folder of a user's own problem; empty for a problem of the benchmark, which every world can read."""
    folder = Path(setting.problem_dir).resolve()
    return () if folder.is_relative_to(SOURCE_ROOT / "problems") else (folder,)


def fits(world: World, setting: Setting) -> bool:
    """Whether a world has the ranks and devices of a setting, may read its problem, and has it open or may open one more."""
    spec, kind = world.spec, kind_of(setting.device)
    wanted = (setting.world, kind, kind.gpus(setting.world), readable(setting))
    if (spec.ranks, spec.kind, spec.gpus, spec.readable) != wanted:
        return False
    return world.problems < kind.pace.problems or world.opens(setting)
