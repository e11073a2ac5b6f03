"""The worlds that exist: one baseline world, one spare that is warming up, and the contender of the run in progress."""

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from sandbox import deadlines, events, gpu_health
from sandbox.deadlines import Limits
from sandbox.events import WorldChanged
from sandbox.exchange import AwaitAll, Stage, fresh_seeds
from sandbox.frames import Kind
from sandbox.jail.choice import Jail
from sandbox.jail.profiles import SOURCE_ROOT
from sandbox.placement import Seat, seats
from sandbox.processes import signal_tree
from sandbox.world import Deadline, World, WorldFailed

BATCH_SECONDS = {"cpu": 0.006, "cuda": 0.005}
MAX_CALLS = {"cpu": 64, "cuda": 128}
"""Short calls on a GPU need a long queue behind the gate."""
ARENA_BYTES = {"cpu": 32 << 20, "cuda": 8 << 30}
UNSEALED_BYTES = 1 << 30
"""Arenas of GPU ranks in host memory, which are copied for every batch."""


class Worlds:
    """Starts, opens and ends worlds. A contender is used once; its spare was started while nothing was timed."""

    def __init__(
        self,
        jail: Jail,
        selector: selectors.BaseSelector,
        await_all: AwaitAll,
        emit: Callable[[Any], None],
        heard: Callable[[World, int, str], None],
    ) -> None:
        """heard(world, rank, text) is called with what a rank prints."""
        self.jail = jail
        self.selector = selector
        self.await_all = await_all
        self.emit = emit
        self.heard = heard
        self.baseline: World | None = None
        self.spare: World | None = None
        self.contender: World | None = None
        self.rival: World | None = None
        """The other contender of a run between two."""
        self.stage: Stage | None = None
        self.stage_key: Any = None
        self.spare_setting: events.Setting | None = None
        self.killed: World | None = None
        self.ailment = ""
        """What the last killed world left its GPUs in; empty: nothing to complain about."""

    def start(self, role: str, setting: events.Setting) -> World:
        """Starts a world's processes."""
        world = World(
            setting.world, role == "baseline", self.jail, self.selector, _readable(setting), _seats(setting)
        )
        world.on_text = lambda rank, text: self.heard(world, rank, text)
        self.emit(WorldChanged(role=role, state="starting", world=world.ranks))
        return world

    def end(self, world: World | None, role: str) -> None:
        """Kills a world."""
        if world is not None:
            world.close()
            self.emit(WorldChanged(role=role, state="gone", world=world.ranks))

    def close(self) -> None:
        """Kills every world."""
        for world in (self.contender, self.rival, self.spare, self.baseline):
            if world is not None:
                world.close()

    def open_problem(self, world: World, setting: events.Setting, role: str) -> None:
        """Waits for a world and opens the problem in it."""
        if not world.opened:
            self.await_all(world, Kind.READY, deadlines.START)
            world.opened = True
        if isinstance(world.setting_key, tuple) and world.setting_key[0] == "opening":
            self.await_all(world, Kind.OPENED, deadlines.START)  # asked for by a run that was cancelled
            world.setting_key = world.setting_key[1]
        if world.setting_key != key(setting):
            world.tell(Kind.OPEN, _opening(setting))
            world.setting_key = ("opening", key(setting))
            self.await_all(world, Kind.OPENED, deadlines.START)
            world.setting_key = key(setting)
        self.emit(
            WorldChanged(
                role=role, state="ready", world=world.ranks, seconds=time.monotonic() - world.started
            )
        )

    @staticmethod
    def fits(world: World, setting: events.Setting) -> bool:
        """Whether a world has as many ranks as a setting wants, on the same devices."""
        return world.ranks == setting.world and world.seats == _seats(setting)

    # --- the contender's side --------------------------------------------------------------------------------

    def prepare_spare(self, setting: events.Setting) -> None:
        """Starts the next contender world in the background."""
        fits = (
            self.spare is not None
            and self.fits(self.spare, setting)
            and self.spare.readable == _readable(setting)
        )
        if self.spare is not None and not fits:
            self.end(self.spare, "spare")
            self.spare = None
        self.spare_setting = setting
        if self.spare is None:
            self.spare = self.start("spare", setting)

    def tend_spare(self) -> None:
        """Carries a starting spare further, without waiting: ready, then its problem opened."""
        world, setting = self.spare, self.spare_setting
        if world is None or setting is None or world.setting_key == key(setting):
            return
        try:
            if not world.opened:
                if world.missing(Kind.READY):
                    return
                world.take()
                world.opened = True
                world.tell(Kind.OPEN, _opening(setting))
                world.setting_key = ("opening", key(setting))
            elif world.setting_key == ("opening", key(setting)):
                if world.missing(Kind.OPENED):
                    return
                world.take()
                world.setting_key = key(setting)
                seconds = time.monotonic() - world.started
                self.emit(WorldChanged(role="spare", state="ready", world=world.ranks, seconds=seconds))
        except WorldFailed:
            self.end(world, "spare")
            self.spare = None

    def take_spare(self, setting: events.Setting) -> World:
        """The spare with the problem open, or a fresh world where there is none that fits; now the contender."""
        self.prepare_spare(setting)
        world = self.spare
        assert world is not None
        if world.setting_key != key(setting):
            self.open_problem(world, setting, "spare")
        self.spare, self.contender = None, world
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
            if world.seats:
                self.examine(world)

    def examine(self, killed: World) -> None:
        """A kernel was killed: its memory must be gone, its GPUs sound, and the baseline world must still compute on them."""
        self.killed = killed
        self.ailment = gpu_health.ailment(killed.seats, killed.rank_pids)
        world = self.baseline
        if (
            world is not None
            and world.setting_key is not None
            and self.stage is not None
            and not self.ailment
        ):
            world.tell(Kind.WAKE)
            try:
                self.await_all(world, Kind.AWAKE, deadlines.HEALTH)
            except Exception:
                # Cancelled, or out of order: either way the next run gets a baseline world that has answered.
                self.drop_baseline()

    def require_health(self) -> str:
        """What was wrong after the last kill, if it still is; empty otherwise."""
        if self.ailment and self.killed is not None:
            self.ailment = gpu_health.ailment(self.killed.seats, self.killed.rank_pids)
        return self.ailment

    def keep_contender(self) -> None:
        """A contender that ran nothing but the problem's own baseline, to its end, is as good as a spare."""
        world = self.contender
        if world is not None and self.spare is None and world.failure is None:
            self.spare, self.contender = world, None
            signal_tree(world.process.pid, signal.SIGCONT)
            world.on_compiling = lambda active: None

    # --- the baseline's side ---------------------------------------------------------------------------------

    def has_stage(self, setting: events.Setting) -> bool:
        """Whether the baseline world has this setting open."""
        return self.stage is not None and self.stage_key == key(setting)

    def prepare_stage(self, setting: events.Setting) -> Stage:
        """The baseline world with this setting open, its slots sized and its time known."""
        if self.stage is not None and self.stage_key == key(setting):
            return self.stage
        world = self.open_baseline(setting, spare_too=True)
        world.tell(Kind.PROBE, {"seeds": fresh_seeds(4)})
        try:
            replies = [payload for payload, _ in self.await_all(world, Kind.REPLY, deadlines.PREPARE)]
        except BaseException:
            self.drop_baseline()  # its late answer would be taken for the next one
            raise
        seconds = max(reply["seconds"] for reply in replies)
        layout = {name: max(reply[name] for reply in replies) for name in ("in_bytes", "out_bytes", "room")}
        layout["sealed"] = all(reply["sealed"] for reply in replies)
        room = ARENA_BYTES[setting.device] if layout["sealed"] else UNSEALED_BYTES
        fits = max(1, room // (layout["in_bytes"] + layout["out_bytes"]))
        layout["slots"] = min(MAX_CALLS[setting.device], fits)
        calls = min(int(BATCH_SECONDS[setting.device] / max(seconds, 1e-6)) + 1, layout["slots"])
        self.stage = Stage(world, Limits.for_baseline(seconds, calls), layout, calls)
        self.stage_key = key(setting)
        return self.stage

    def open_baseline(self, setting: events.Setting, spare_too: bool = False) -> World:
        """The baseline world with a setting's problem open; its stage has still to be found."""
        self.stage = None
        if self.baseline is not None and not self.fits(self.baseline, setting):
            self.drop_baseline()
        if self.baseline is None:
            self.baseline = self.start("baseline", setting)
        if spare_too and self.spare is None:
            self.prepare_spare(setting)  # both worlds import torch at the same time
        self.open_problem(self.baseline, setting, "baseline")
        return self.baseline

    def drop_spare(self) -> None:
        """Ends the spare: nothing may run beside a calibration."""
        self.end(self.spare, "spare")
        self.spare = None

    def drop_baseline(self) -> None:
        """Forgets the baseline world; the next run starts a new one."""
        self.end(self.baseline, "baseline")
        self.baseline = self.stage = None

    def settle_baseline(self, poll: Callable[[float], None]) -> None:
        """After a cancel the baseline world may be in the middle of something: hear it out, or start a new one."""
        world = self.baseline
        if world is None:
            return
        # A number of its own: any other answer may have been asked for before.
        last_word = {"sync": time.monotonic_ns()}
        world.tell(Kind.SYNC, last_word)
        deadline = time.monotonic() + 2.0
        with contextlib.suppress(WorldFailed, Deadline):
            for line in world.lines:
                while not any(payload == last_word for _, payload, _ in line.frames):
                    if time.monotonic() > deadline or line.closed or world.failure:
                        raise Deadline([])
                    poll(0.05)
            for line in world.lines:
                for _, _, fds in line.frames:
                    for fd in fds:
                        os.close(fd)
                line.frames.clear()
            return
        self.drop_baseline()


def _seats(setting: events.Setting) -> tuple[Seat, ...]:
    """One GPU per rank; none for CPU ranks."""
    return seats(setting.world) if setting.device == "cuda" else ()


def _readable(setting: events.Setting) -> tuple[Path, ...]:
    """The folder of a user's own problem; the benchmark's are readable anyway."""
    folder = Path(setting.problem_dir).resolve()
    return () if folder.is_relative_to(SOURCE_ROOT / "problems") else (folder,)


def _opening(setting: events.Setting) -> dict[str, Any]:
    return {
        "folder": setting.problem_dir,
        "sizes": setting.sizes,
        "preset": setting.preset,
        "dtype": setting.dtype,
    }


def key(setting: events.Setting) -> tuple[Any, ...]:
    """What makes a baseline world fit a run: the setting and the problem's files as they are now."""
    folder = Path(setting.problem_dir)
    stamps = tuple(
        (folder / name).stat().st_mtime_ns for name in ("inputs.py", "baseline.py", "problem.toml")
    )
    return (msgspec.json.encode(setting), stamps)
