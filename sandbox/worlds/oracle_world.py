"""The oracle world: the trusted ranks that draw inputs, run the float64 oracle and compare. It is never timed."""

import contextlib
from collections.abc import Callable

from sandbox.machine.devices import kind_of
from sandbox.machine.devices.kind import calls_for
from sandbox.protocol.events import Setting
from sandbox.protocol.frames import Kind
from sandbox.protocol.launch_plan import Role
from sandbox.protocol.messages import MeasureBaseline, SlotLayout, Sync, Wake
from sandbox.worlds import deadlines
from sandbox.worlds.deadlines import TimeLimits
from sandbox.worlds.exchange import PreparedSetting, ask, fresh_seeds
from sandbox.worlds.failures import WorldFailed
from sandbox.worlds.starter import WorldStarter, fits
from sandbox.worlds.world import Opened, World, opening

MEASURED_ITERATIONS = 24
"""Most iterations from which the usual errors of the baseline are calibrated."""
SYNC_SECONDS = 2.0


class OracleWorld:
    """The oracle world of a referee and the setting that is prepared in it. It lives across runs."""

    def __init__(self, starter: WorldStarter) -> None:
        self.starter = starter
        self.world: World | None = None
        self.prepared: PreparedSetting | None = None
        self.killed: World | None = None
        """The last killed world that ran a kernel, if its devices can keep a fault after that."""
        self.gpu_fault = ""
        """The fault of that world's GPUs in one line; empty if there is none."""
        self._prepared_key: Opened | None = None

    def is_prepared(self, setting: Setting) -> bool:
        """Whether this setting is prepared, with the problem's files as they are now."""
        return self.prepared is not None and self._prepared_key == opening(setting)

    def start(self, setting: Setting) -> World:
        """The world for a setting; it may still be starting."""
        if self.world is not None and not fits(self.world, setting):
            self.drop()
        if self.world is None:
            self.world = self.starter.start(Role.ORACLE, setting)
        return self.world

    def open(self, setting: Setting) -> World:
        """The world with a setting's problem open, but nothing measured."""
        self.prepared = None
        world = self.start(setting)
        self.starter.open_problem([world], setting, Role.ORACLE)
        return world

    def prepare(self, setting: Setting) -> PreparedSetting:
        """Opens a setting in the world, and measures the sizes of slots and the time of a baseline call."""
        if self.prepared is not None and self.is_prepared(setting):
            return self.prepared
        world = self.open(setting)
        kind = kind_of(setting.device)
        order = MeasureBaseline(fresh_seeds(MEASURED_ITERATIONS), list(kind.arena_bytes), kind.pace.references)
        try:
            measured = ask(self.starter.await_all, world, order, deadlines.PREPARE)
        except BaseException:
            self.drop()  # the next order must not get its late answer
            raise
        seconds = max(reply.seconds for reply in measured)
        in_bytes, out_bytes = max(r.in_bytes for r in measured), max(r.out_bytes for r in measured)
        sealed = all(reply.sealed for reply in measured)
        arena_bytes = min(reply.arena_bytes for reply in measured) if sealed else kind.unsealed_arena_bytes
        count = min(kind.pace.slots, max(1, arena_bytes // (in_bytes + out_bytes)))
        calls = calls_for(kind.pace, seconds, seconds, count)
        layout = SlotLayout(in_bytes, out_bytes, max(r.room for r in measured), count, sealed)
        varies = any(reply.varies for reply in measured)
        room = [reply.references for reply in measured if reply.references is not None]
        limits = TimeLimits.for_baseline(seconds, calls)
        self.prepared = PreparedSetting(world, limits, layout, calls, seconds, varies, min(room, default=None))
        self._prepared_key = opening(setting)
        return self.prepared

    def drop(self) -> None:
        """Kills the world; the next run starts a new one."""
        if self.world is not None:
            self.starter.end(self.world, Role.ORACLE)
        self.world = self.prepared = None

    def finish_orders(self, poll: Callable[[float], None]) -> None:
        """After a cancel: waits until every order is answered, and kills the world if that takes too long."""
        world = self.world
        if world is None or self.prepared is None:
            return
        number = self.starter.timer.perf_counter_ns()  # identifies this answer among those of earlier orders
        world.tell(Sync(number))
        deadline = self.starter.timer.monotonic() + SYNC_SECONDS
        with contextlib.suppress(WorldFailed):
            while self.starter.timer.monotonic() < deadline:
                if world.take_synced(number):
                    return
                poll(0.05)
        self.drop()

    # --- the GPUs after a kernel was killed ------------------------------------------------------------------

    def examine(self, killed: World) -> None:
        """Checks the GPUs of a killed world: its memory is freed, they report no fault, and this world computes on them."""
        if not killed.spec.kind.outlives_kernels:
            return
        self.killed, self.gpu_fault = killed, _gpu_fault(killed)
        world = self.world
        if world is not None and world.idle and self.prepared is not None and not self.gpu_fault:
            world.tell(Wake())
            try:
                self.starter.await_all(world, Kind.AWAKE, deadlines.HEALTH)
            except Exception:
                self.drop()  # cancelled or broken: the next run needs a world that has answered

    def current_gpu_fault(self) -> str:
        """The GPU fault of the last kill in one line, if it is still there; else empty."""
        if self.gpu_fault and self.killed is not None:
            self.gpu_fault = _gpu_fault(self.killed)
        return self.gpu_fault


def _gpu_fault(killed: World) -> str:
    return killed.spec.kind.gpu_fault(killed.spec.gpus, killed.processes.rank_pids)
