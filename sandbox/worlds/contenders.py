"""The contender worlds: spares that start while nothing is timed, and the one or two that the present run uses."""

import contextlib
from collections.abc import Iterator

from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Setting
from sandbox.protocol.frames import Kind
from sandbox.protocol.launch_plan import Role
from sandbox.worlds.failures import HarnessFailed, WorldFailed
from sandbox.worlds.starter import WorldStarter, fits
from sandbox.worlds.world import State, World

SPARES = 2
"""Most spares. With two, there is also one for a kernel that is saved right after a verdict."""


class Contenders:
    """The contender worlds of a referee. Each runs one kernel and is killed."""

    def __init__(self, starter: WorldStarter) -> None:
        self.starter = starter
        self.spares: list[World] = []
        """The oldest first."""
        self.contender: World | None = None
        self.rival: World | None = None
        """The second contender of a run between two."""
        self._setting: Setting | None = None
        """The setting that spares are prepared for."""

    def prepare_spare(self, setting: Setting, count: int = 1) -> None:
        """Starts spares in the background until `count` fit. `tend_spares` starts the others."""
        for world in list(self.spares):
            if not fits(world, setting):
                self._drop(world)
        self._setting = setting
        while len(self.spares) < count:
            self.spares.append(self.starter.start(Role.SPARE, setting))

    def open_spares(self) -> None:
        """Opens the problem in spares that have started, without waiting for them."""
        for world in list(self.spares):
            assert self._setting is not None
            try:
                self._tend(world, self._setting)
            except (WorldFailed, OSError):
                self._drop(world)

    def tend_spares(self) -> None:
        """Opens the problem in spares, and starts the next one when all have it open."""
        self.open_spares()
        setting = self._setting
        if setting and 0 < len(self.spares) < SPARES and all(world.has_open(setting) for world in self.spares):
            with contextlib.suppress(HarnessFailed):  # one is enough if the machine has no room for more
                self.spares.append(self.starter.start(Role.SPARE, setting))

    def _tend(self, world: World, setting: Setting) -> None:
        if world.state is State.STARTING and not world.missing(Kind.READY):
            world.take(Kind.READY)
            world.open(setting)
        elif world.state is State.OPENING and world.opens(setting) and not world.missing(Kind.OPENED):
            world.take(Kind.OPENED)
            self.starter.report_ready(world, Role.SPARE)

    @contextlib.contextmanager
    def spares_stopped(self) -> Iterator[None]:
        """Stops spares within a block, because GPU work of a starting spare would count against the kernel."""
        stopped = list(self.spares)
        for world in stopped:
            world.processes.pause()
        try:
            yield
        finally:
            for world in stopped:
                world.processes.resume()

    def drop_spares(self) -> None:
        """Kills all spares."""
        for world in list(self.spares):
            self._drop(world)

    def _drop(self, world: World) -> None:
        self.spares.remove(world)
        self.starter.end(world, Role.SPARE)

    # --- the worlds of a run ---------------------------------------------------------------------------------

    def take(self, setting: Setting) -> World:
        """The contender of a run: a spare with the problem open, or a world that is started now.

        A world on GPUs takes a second to start. If this was the last spare, the next one starts beside the check.
        """
        self.contender = self._take(setting)
        if kind_of(setting.device).on_gpus and not self.spares:
            with contextlib.suppress(HarnessFailed):  # the machine has no room for it now
                self.prepare_spare(setting)
        return self.contender

    def take_rival(self, setting: Setting) -> World:
        """The second contender of a run between two. Both start at the same time if there are no spares."""
        self.prepare_spare(setting, 2)
        self.rival = self._take(setting)
        return self.rival

    def _take(self, setting: Setting) -> World:
        """A spare with the problem open. Those that started beside another kernel, which may have taken all memory, may fail."""
        before = list(self.spares)
        self.prepare_spare(setting)
        world = next((spare for spare in self.spares if spare.has_open(setting)), self.spares[0])
        try:
            if not world.has_open(setting):
                self.starter.open_problem([world], setting, Role.SPARE)
        except HarnessFailed:
            self._drop(world)
            if world not in before:
                raise
            return self._take(setting)
        self.spares.remove(world)
        return world

    def keep(self) -> None:
        """Makes the contender a spare again, as warm as references. Only for one that has run the baseline to the end."""
        world = self.contender
        if world is not None and len(self.spares) < SPARES and world.wires.failure is None:
            self.spares.append(world)
            self.contender = None
            world.processes.resume()
            world.wires.watch_compiling(None)

    def end(self) -> list[World]:
        """Kills the contender and its rival after their run; returns those that were killed."""
        used = [(self.contender, Role.CONTENDER), (self.rival, Role.RIVAL)]
        self.contender = self.rival = None
        killed = [(world, role) for world, role in used if world is not None]
        for world, role in killed:
            self.starter.end(world, role)
        return [world for world, _ in killed]
