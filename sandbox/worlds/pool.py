"""The worlds that exist: the trusted one, the references that run the baseline, spares, and the contender of a run."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sandbox.jail.choice import Jail
from sandbox.machine.devices import kind_of
from sandbox.machine.devices.pace import calls_for
from sandbox.machine.time_source import TimeSource
from sandbox.protocol import events
from sandbox.protocol.events import WorldChanged
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import LoadKernel, Probe, Probed, SlotLayout, Sync, Wake
from sandbox.worlds import deadlines
from sandbox.worlds.deadlines import TimeLimits
from sandbox.worlds.exchange import REFERENCE, AwaitAll, Exchange, Stage, ask, fresh_seeds, hand_over_arenas
from sandbox.worlds.failures import HarnessFailed, WorldFailed
from sandbox.worlds.first_calls import FirstCalls
from sandbox.worlds.opening import has_open, opening, readable, stamps_of
from sandbox.worlds.state import State
from sandbox.worlds.world import Stamps, World
from sandbox.worlds.world_spec import WorldSpec

PROBED = 24
"""Iterations that the baseline's usual errors may be found from, at the most."""
SPARES = 2
"""Contender worlds that wait: a save right after a verdict finds one, too."""


class Worlds:
    """Starts, opens and ends worlds. A contender is used once; its spare was started while nothing was timed."""

    def __init__(
        self,
        jail: Jail,
        start_processes: Callable[[WorldSpec], World],
        await_all: AwaitAll,
        emit: Callable[[Any], None],
        timer: TimeSource = time,
    ) -> None:
        """start_processes: starts a world with this spec; raises OSError where this machine has no room for it."""
        self.jail = jail
        self.start_processes = start_processes
        self.await_all = await_all
        self.emit = emit
        self.timer = timer
        self.oracle: World | None = None
        self.references: list[World] = []
        """They run the baseline, in processes like the contender's, with one set of arenas for all."""
        self._loaded: tuple[Stage, list[World]] | None = None
        """The stage whose baseline is loaded in these references."""
        self.spares: list[World] = []
        """The oldest first."""
        self.contender: World | None = None
        self.rival: World | None = None
        """The other contender of a run between two."""
        self.stage: Stage | None = None
        self._stage_key: tuple[events.Setting, Stamps] | None = None
        self.spare_setting: events.Setting | None = None
        self.killed: World | None = None
        self.gpu_fault = ""
        """What is wrong with the GPUs of the last killed world, in a line; empty: nothing."""

    def start(self, role: str, setting: events.Setting) -> World:
        """Starts a world's processes.

        Raises HarnessFailed where this machine has no process, descriptor or memory left.
        """
        kind = kind_of(setting.device)
        spec = WorldSpec(
            ranks=setting.world,
            kind=kind,
            trusted=role == "baseline",
            jail=self.jail,
            readable=readable(setting),
            gpus=kind.gpus(setting.world),
            kernel=role == "spare",
        )
        try:
            world = self.start_processes(spec)
        except OSError as error:
            raise HarnessFailed(f"cannot start the {role} world: {error}") from error
        self.emit(WorldChanged(role=role, state="starting", world=world.ranks))
        return world

    def end(self, world: World | None, role: str) -> None:
        """Kills a world."""
        if world is not None:
            world.close()
            self.emit(WorldChanged(role=role, state="gone", world=world.ranks))

    def close(self) -> None:
        """Kills every world."""
        for world in (self.contender, self.rival, *self.spares, *self.references, self.oracle):
            if world is not None:
                world.close()

    def open_problem(self, worlds: Sequence[World], setting: events.Setting, role: str) -> None:
        """Waits for worlds and opens the problem in them, at the same time in all."""
        for world in worlds:
            if world.state is State.STARTING:
                self.await_all(world, Kind.READY, deadlines.START)
            if world.state is State.OPENING:
                self.await_all(world, Kind.OPENED, deadlines.START)  # asked for by a run that was cancelled
            if not has_open(world, setting):
                world.open(opening(setting), stamps_of(setting))
        for world in worlds:
            if world.state is State.OPENING:
                self.await_all(world, Kind.OPENED, deadlines.START)
                seconds = self.timer.monotonic() - world.started
                self.emit(WorldChanged(role=role, state="ready", world=world.ranks, seconds=seconds))

    @staticmethod
    def fits(world: World, setting: events.Setting) -> bool:
        """Whether a world has as many ranks as a setting wants, on the same devices."""
        kind, spec = kind_of(setting.device), world.spec
        return (spec.ranks, spec.kind, spec.gpus) == (
            setting.world,
            kind,
            kind.gpus(setting.world),
        )

    # --- the contender's side --------------------------------------------------------------------------------

    def prepare_spare(self, setting: events.Setting) -> None:
        """Starts the next contender world in the background; another follows once it is ready: see `tend_spares`."""
        for world in list(self.spares):
            if not (self.fits(world, setting) and world.spec.readable == readable(setting)):
                self._drop_spare(world)
        self.spare_setting = setting
        if not self.spares:
            self.spares.append(self.start("spare", setting))

    def tend_spares(self) -> None:
        """Carries starting spares further, without waiting: ready, then their problem opened."""
        setting = self.spare_setting
        if setting is None:
            return
        for world in list(self.spares):
            try:
                self._tend(world, setting)
            except (WorldFailed, OSError):
                self._drop_spare(world)
        if (
            self.spares
            and len(self.spares) < SPARES
            and all(has_open(world, setting) for world in self.spares)
        ):
            with contextlib.suppress(HarnessFailed):  # one is enough where there is no room for more
                self.spares.append(self.start("spare", setting))

    @contextlib.contextmanager
    def spares_stopped(self) -> Iterator[None]:
        """Spares that still start stand still within a block: their first work on a GPU would be taken for the kernel's."""
        stopped = list(self.spares)
        for world in stopped:
            world.pause()
        try:
            yield
        finally:
            for world in stopped:
                world.resume()

    def _tend(self, world: World, setting: events.Setting) -> None:
        if world.state is State.STARTING and not world.missing(Kind.READY):
            world.take(Kind.READY)
            world.open(opening(setting), stamps_of(setting))
        elif (
            world.state is State.OPENING
            and world.opens(opening(setting), stamps_of(setting))
            and not world.missing(Kind.OPENED)
        ):
            world.take(Kind.OPENED)
            seconds = self.timer.monotonic() - world.started
            self.emit(WorldChanged(role="spare", state="ready", world=world.ranks, seconds=seconds))

    def _drop_spare(self, world: World) -> None:
        self.spares.remove(world)
        self.end(world, "spare")

    def take_spare(self, setting: events.Setting) -> World:
        """A spare with the problem open, or a fresh world where there is none that fits; now the contender."""
        self.prepare_spare(setting)
        world = next((spare for spare in self.spares if has_open(spare, setting)), self.spares[0])
        if not has_open(world, setting):
            self.open_problem([world], setting, "spare")
        self.spares.remove(world)
        self.contender = world
        return world

    def take_rival(self, setting: events.Setting) -> World:
        """A fresh world for a run's second contender, to be taken before the first."""
        self.rival = self.take_spare(setting)
        self.contender = None
        return self.rival

    def end_contender(self) -> None:
        """Kills the contender, and its rival if there is one, after their run."""
        used = [world for world in (self.contender, self.rival) if world is not None]
        self.end(self.contender, "contender")
        self.end(self.rival, "rival")
        self.contender = self.rival = None
        for world in used:
            if world.spec.kind.outlives_kernels:
                self.examine(world)

    def examine(self, killed: World) -> None:
        """A kernel was killed: its memory must be gone, its GPUs sound, and the baseline world must still compute on them."""
        self.killed = killed
        self.gpu_fault = _gpu_fault(killed)
        world = self.oracle
        if world is not None and world.idle and self.stage is not None and not self.gpu_fault:
            world.tell(Wake())
            try:
                self.await_all(world, Kind.AWAKE, deadlines.HEALTH)
            except Exception:
                # Cancelled, or out of order: either way the next run gets a baseline world that has answered.
                self.drop_oracle()

    def require_health(self) -> str:
        """What was wrong after the last kill, if it still is; empty otherwise."""
        if self.gpu_fault and self.killed is not None:
            self.gpu_fault = _gpu_fault(self.killed)
        return self.gpu_fault

    def keep_contender(self) -> None:
        """A contender that ran only the problem's own baseline, to its end, becomes the spare."""
        world = self.contender
        if world is not None and len(self.spares) < SPARES and world.failure is None:
            self.spares.append(world)
            self.contender = None
            world.resume()
            world.watch_compiling(None)

    # --- the baseline's side ---------------------------------------------------------------------------------

    def has_stage(self, setting: events.Setting) -> bool:
        """Whether the baseline world has this setting open."""
        return self.stage is not None and self._stage_key == (setting, stamps_of(setting))

    def prepare_stage(self, setting: events.Setting, references: int = 0) -> Stage:
        """The trusted world with this setting open, its slots sized and its time known.

        references: as many worlds for the baseline are started at the same time, if they are not there.
        """
        if self.stage is not None and self.has_stage(setting):
            return self.stage
        world = self.open_oracle(setting, spare_too=True, references=references)
        kind = kind_of(setting.device)
        order = Probe(fresh_seeds(PROBED), kind.arena_bytes)
        try:
            probed = ask(self.await_all, world, order, Probed, deadlines.PREPARE)
        except BaseException:
            self.drop_oracle()  # its late answer would be taken for the next one
            raise
        seconds = max(reply.seconds for reply in probed)
        in_bytes, out_bytes = max(r.in_bytes for r in probed), max(r.out_bytes for r in probed)
        sealed = all(reply.sealed for reply in probed)
        arena_bytes = kind.arena_bytes if sealed else kind.unsealed_arena_bytes
        count = min(kind.pace.slots, max(1, arena_bytes // (in_bytes + out_bytes)))
        calls = calls_for(kind.pace, kind.pace.batch_s, seconds, seconds, count)
        layout = SlotLayout(in_bytes, out_bytes, max(r.room for r in probed), count, sealed)
        varies = any(reply.varies for reply in probed)
        room = [reply.references for reply in probed if reply.references is not None]
        limits = TimeLimits.for_baseline(seconds, calls)
        self.stage = Stage(world, limits, layout, calls, seconds, varies, min(room, default=None))
        self._stage_key = (setting, stamps_of(setting))
        return self.stage

    def open_oracle(self, setting: events.Setting, spare_too: bool = False, references: int = 0) -> World:
        """The trusted world with a setting's problem open; its stage has still to be found."""
        self.stage = None
        if self.oracle is not None and not self.fits(self.oracle, setting):
            self.drop_oracle()
        if self.oracle is None:
            self.oracle = self.start("baseline", setting)
        if spare_too:
            self.prepare_spare(setting)  # all worlds import torch at the same time
        self.start_references(setting, references)
        self.open_problem([self.oracle], setting, "baseline")
        return self.oracle

    def drop_all_but_oracle(self) -> None:
        """Ends spares and references: nothing may run beside a calibration."""
        for world in list(self.spares):
            self._drop_spare(world)
        self.drop_references()

    def drop_oracle(self) -> None:
        """Forgets the trusted world; the next run starts a new one."""
        self.end(self.oracle, "baseline")
        self.oracle = self.stage = None

    # --- the references --------------------------------------------------------------------------------------

    def start_references(self, setting: events.Setting, count: int) -> None:
        """Starts what is missing of the worlds that run the baseline."""
        for world in list(self.references):
            if not self.fits(world, setting) or world.failure or world.spec.readable != readable(setting):
                self._drop_reference(world)
        while len(self.references) < count:
            self.references.append(self.start("reference", setting))

    def has_references(self, count: int) -> bool:
        """Whether so many worlds, or as many as there is room for, have the baseline of the present stage loaded."""
        return count == 0 or (
            self._loaded is not None
            and self._loaded[0] is self.stage
            and len(self._loaded[1]) >= self._loaded[0].references_of(count)
        )

    def take_references(self, stage: Stage, setting: events.Setting, count: int) -> list[World]:
        """Worlds with the problem open and the baseline loaded: `count` of them, or as many as there is room for."""
        count = stage.references_of(count)
        for world in self.references[stage.references_of(len(self.references)) :]:
            self._drop_reference(world)
        self.start_references(setting, count)
        chosen = self.references[:count]
        if not self.has_references(count):
            self._loaded = None
            for world in chosen:
                world.resume()
            self.open_problem(chosen, setting, "reference")
            try:
                self._load(stage, setting, chosen)
            except BaseException:
                self.drop_references()  # their late answers would be taken for the next ones
                raise
            self._loaded = (stage, chosen)
        return chosen

    def _load(self, stage: Stage, setting: events.Setting, worlds: Sequence[World]) -> None:
        """Hands references their arenas, loads the baseline in them and has them make their first calls."""
        hand_over_arenas(self.await_all, stage, worlds, REFERENCE, shared=stage.layout.sealed)
        source = (Path(setting.problem_dir) / "baseline.py").read_text()
        for world in worlds:
            world.tell(LoadKernel("baseline.py", source))
        for world in worlds:
            self.await_all(world, Kind.LOADED, stage.limits.load)
        exchange = Exchange("", stage, worlds[0], self.await_all, self.emit, REFERENCE, self.timer)
        FirstCalls(exchange, worlds).make()

    def drop_busy_references(self) -> None:
        """After a run that ended early: a world that was running, or has queued a batch, is in the middle of something."""
        for world in list(self.references):
            if not (world.paused and world.idle):
                self._drop_reference(world)

    def drop_references(self) -> None:
        """Forgets them; the next run starts new ones."""
        for world in list(self.references):
            self._drop_reference(world)

    def renew_references(self, setting: events.Setting) -> None:
        """Starts new ones after a run whose calls had ever new shapes: all worlds of the next run are then equally old."""
        if self.stage is not None and self.stage.varies:
            count = len(self.references)
            self.drop_references()
            self.start_references(setting, count)

    def _drop_reference(self, world: World) -> None:
        self.references.remove(world)
        self._loaded = None
        self.end(world, "reference")

    def await_oracle(self, poll: Callable[[float], None]) -> None:
        """After a cancel the baseline world may still work: waits for its answers, or ends it."""
        world = self.oracle
        if world is None:
            return
        # A number of its own: any other answer may have been asked for before.
        number = self.timer.perf_counter_ns()
        world.tell(Sync(number))
        deadline = self.timer.monotonic() + 2.0
        with contextlib.suppress(WorldFailed):
            while self.timer.monotonic() < deadline:
                if world.take_synced(number):
                    return
                poll(0.05)
        self.drop_oracle()


def _gpu_fault(killed: World) -> str:
    return killed.spec.kind.gpu_fault(killed.spec.gpus, killed.rank_pids)
