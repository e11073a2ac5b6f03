"""The reference worlds: they run the baseline in processes like the contender's and are timed against it."""

import math
from collections.abc import Sequence
from pathlib import Path

from sandbox.machine.devices.kind import warm_calls
from sandbox.protocol.events import Setting
from sandbox.protocol.frames import Kind
from sandbox.protocol.launch_plan import Role
from sandbox.protocol.messages import ChooseBatch, LoadKernel
from sandbox.worlds.exchange import REFERENCE, Exchange, PreparedSetting, hand_over_arenas
from sandbox.worlds.failures import HarnessFailed
from sandbox.worlds.starter import WorldStarter, fits
from sandbox.worlds.world import BUSY, State, World

LEVEL_CALLS, LEVEL = 25, 0.97
"""Calls of each world that are compared with as many before, and the share of their time above which calls are level."""


class References:
    """The reference worlds of a referee. They live across runs and share one set of arenas."""

    def __init__(self, starter: WorldStarter) -> None:
        self.starter = starter
        self.worlds: list[World] = []
        self._loaded: tuple[PreparedSetting, list[World]] | None = None
        """The setting whose baseline is loaded, and the worlds that have loaded it."""
        self._outdated: Setting | None = None
        """The setting of the last run if its shapes vary. For a run with the same setting they are too old."""

    def start(self, setting: Setting, count: int) -> None:
        """Starts worlds until there are `count`; kills those that failed or do not fit the setting."""
        self._drop_unfit(setting)
        while len(self.worlds) < count:
            self.worlds.append(self.starter.start(Role.REFERENCE, setting))

    def leave_other_problems(self, setting: Setting) -> None:
        """Opens a setting's problem in the worlds that have another one open, so that they free its memory."""
        self._drop_unfit(setting)
        others = [world for world in self.worlds if world.state is not State.STARTING and not world.has_open(setting)]
        if others:
            self._loaded = None
        for world in others:
            world.processes.resume()
        self.starter.open_problem(others, setting, Role.REFERENCE)

    def are_loaded(self, prepared: PreparedSetting | None, count: int) -> bool:
        """Whether `count` worlds, or as many as fit into memory, have the baseline of this setting loaded."""
        if count == 0:
            return True
        if self._outdated is not None or prepared is None or self._loaded is None or self._loaded[0] is not prepared:
            return False
        return len(self._loaded[1]) >= prepared.references_of(count)

    def take(self, prepared: PreparedSetting, setting: Setting, count: int) -> list[World]:
        """`count` worlds, or as many as fit into memory, with the baseline loaded. Older ones may have found no memory."""
        before = set(self.worlds)
        if self._loaded is not None and self._loaded[0] is prepared:
            self.renew()
        self._outdated = None
        count = prepared.references_of(count)
        for world in self.worlds[prepared.references_of(len(self.worlds)) :]:
            self._drop(world)
        self.start(setting, count)
        chosen = self.worlds[:count]
        if not self.are_loaded(prepared, count):
            self._loaded = None
            for world in chosen:
                world.processes.resume()
            try:
                self.starter.open_problem(chosen, setting, Role.REFERENCE)
            except HarnessFailed:
                self.drop()
                if before.isdisjoint(chosen):
                    raise
                return self.take(prepared, setting, count)
            try:
                self._load(prepared, setting, chosen)
            except BaseException:
                self.drop()  # the next orders must not get their late answers
                raise
            self._loaded = (prepared, chosen)
        return chosen

    def _load(self, prepared: PreparedSetting, setting: Setting, worlds: Sequence[World]) -> None:
        """Hands arenas over, loads the baseline and makes the first calls."""
        starter = self.starter
        hand_over_arenas(starter.await_all, prepared, worlds, REFERENCE, shared=prepared.layout.sealed)
        source = (Path(setting.problem_dir) / "baseline.py").read_text()
        for world in worlds:
            world.tell(LoadKernel("baseline.py", source))
        for world in worlds:
            starter.await_all(world, Kind.LOADED, prepared.limits.load)
        exchange = Exchange(prepared, worlds[0], starter.await_all, starter.emit, starter.timer, REFERENCE)
        make_first_calls(exchange, worlds)

    def drop_busy(self) -> None:
        """After a run that ended early: kills the worlds that were running or have a batch queued. Those that start go on."""
        for world in list(self.worlds):
            if world.state in BUSY or (world.idle and not world.processes.paused):
                self._drop(world)

    def drop(self) -> None:
        """Kills all of them; the next run starts new ones."""
        self._outdated = None
        for world in list(self.worlds):
            self._drop(world)

    def note_run(self, prepared: PreparedSetting | None, setting: Setting) -> None:
        """After a run: if the shapes of the setting vary, worlds that ran are older than the next contender."""
        used = prepared is not None and self._loaded is not None and self._loaded[0] is prepared
        self._outdated = setting if prepared is not None and prepared.varies and used else None

    def renew(self) -> None:
        """Starts new worlds in place of those that are too old for another run with the setting of the last one.

        A run with another setting can use them.

        Raises HarnessFailed as `start`.
        """
        if self._outdated is not None:
            setting, count = self._outdated, len(self.worlds)
            self.drop()
            self.start(setting, count)

    def _drop_unfit(self, setting: Setting) -> None:
        for world in list(self.worlds):
            if not fits(world, setting) or world.wires.failure:
                self._drop(world)

    def _drop(self, world: World) -> None:
        self.worlds.remove(world)
        self._loaded = None
        self.starter.end(world, Role.REFERENCE)


def make_first_calls(exchange: Exchange, worlds: Sequence[World]) -> None:
    """Calls the baseline on one input and then, if shapes vary between inputs, on a new input in each call until calls are level.

    exchange: of the references' side, whose worlds have loaded the baseline. Raises HarnessFailed.
    """
    prepared = exchange.prepared
    exchange.draw(1, timed=False)
    exchange.reveal(0, 1)
    exchange.arm(*worlds)
    for world in worlds:  # one after another, as in `_run`
        world.tell(ChooseBatch(0, 1, warm_calls(prepared.call_seconds)))
        exchange.await_all(world, Kind.CHOSEN, prepared.limits.first_call)
    most = warm_calls(prepared.call_seconds, distinct=True) if prepared.varies else 0
    prepared.distinct_calls, before, last = 0, math.inf, 0.0
    while prepared.distinct_calls < most and last <= LEVEL * before:
        count = min(LEVEL_CALLS, most - prepared.distinct_calls)
        before, last = last or math.inf, _run(exchange, worlds, count)
        prepared.distinct_calls += count


def _run(exchange: Exchange, worlds: Sequence[World], calls: int) -> float:
    """Nanoseconds of a call in all worlds, which make calls one after another: on one GPU they would share it by time slices."""
    limit, slots, taken = exchange.prepared.limits.first_call, exchange.prepared.layout.slots, 0
    for begun in range(0, calls, slots):
        count = min(slots, calls - begun)
        exchange.draw(count, timed=False)
        exchange.arm(*worlds)
        for world in worlds:
            exchange.reveal(0, count)  # the last world may have changed them in place
            world.tell(ChooseBatch(0, count))
            exchange.await_all(world, Kind.CHOSEN, limit)
            started = world.go()
            taken += exchange.await_done(world, limit) - started
        exchange.discard_outputs()
    return taken / calls
