"""The pipe to the engine, and waits for the answers of a world's ranks, which serve all other input meanwhile."""

import os
import re
import selectors
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from sandbox.machine.processes import outside_seconds, too_busy
from sandbox.protocol import events
from sandbox.protocol.events import Cancelled, Fatal
from sandbox.protocol.frames import Kind
from sandbox.protocol.launch_plan import Role
from sandbox.worlds import deadlines
from sandbox.worlds.deadlines import TimeSource
from sandbox.worlds.failures import Deadline, HarnessFailed, WorldFailed, machine_too_busy
from sandbox.worlds.rank_wire import Received
from sandbox.worlds.world import BUSY, IDLE, World
from sandbox.worlds.world_process import MEMORY_CHECK_SECONDS

SPIN_SECONDS = 0.03
"""Waits spin for so long where cores are free. A process that sleeps wakes up tens of microseconds late, which would count."""
CORES_PER_RANK = 4
"""Cores for each rank from which on some are free."""
_RAISED = re.compile(r"^[\w.]*(?:Error|Exception)\b.*", re.MULTILINE)
"""The last line of a traceback."""


class Stopped(Exception):
    """The run was cancelled, or the engine hung up."""


class SettingRefused(Exception):
    """Sizes, world size and dtype do not fit together, or do not fit the kernel."""

    def __init__(self, message: str, advice: str = "Choose other sizes, another dtype or world size.") -> None:
        super().__init__(message)
        self.advice = advice


@dataclass
class Awaiting:
    """Waits for answers. See sandbox.worlds.exchange.AwaitAll."""

    poll: Callable[[float], None]
    """poll(seconds): serves what arrives within that time."""
    stopped: Callable[[Kind], bool]
    """Whether a wait for answers of this kind ends without them."""
    timer: TimeSource = time
    outside: Callable[[], float] = outside_seconds
    """CPU seconds of other programs on this machine."""

    def __call__(self, world: World, kind: Kind, limit: float, may_be_late: bool = False) -> list[Received]:
        """Waits for one answer of this kind from every rank of a world.

        may_be_late: raise Deadline for worlds without a kernel, too.

        Raises:
            WorldFailed, Deadline: a world with a kernel failed.
            HarnessFailed, SettingRefused: a world in which no kernel was loaded failed, or the ranks only waited for a core.
            Stopped: as `stopped` says.
        """
        runs_kernel = world.spec.kernel and world.state in IDLE | BUSY  # earlier, none was loaded
        time_left = _TimeLeft(world, limit, self.timer, self.outside)
        spins = world.spec.kind.spins and len(os.sched_getaffinity(0)) >= CORES_PER_RANK * world.ranks
        spin_s = SPIN_SECONDS if spins else 0.0
        while True:
            try:
                missing = world.missing(kind)
                if not missing:
                    return world.take(kind)
                left = time_left.seconds()
                if left < 0:
                    if not may_be_late and time_left.machine_too_busy():
                        raise machine_too_busy(f"ranks {missing} waited for one")
                    raise Deadline(missing, kind)
            except WorldFailed as failed:
                if runs_kernel:
                    raise
                if failed.kind == "REFUSED":
                    raise SettingRefused(failed.text) from None
                printed = _printed(world)
                raised = _RAISED.findall(printed) if failed.kind == "DIED" else []
                raise HarnessFailed(f"{raised[-1] if raised else failed}\n{failed.text}\n{printed}") from None
            except Deadline as late:
                if runs_kernel or may_be_late:
                    raise
                role = Role.ORACLE if world.trusted else Role.SPARE if world.spec.kernel else Role.REFERENCE
                message = f"ranks {late.ranks} of the {role.words} world did not answer within {limit:.0f} s"
                raise HarnessFailed(f"{message}\n{_printed(world)}") from None
            if self.stopped(kind):
                raise Stopped
            self.poll(0.0 if time_left.elapsed < spin_s else min(0.25, max(left, 0.001)))
            if time_left.elapsed > MEMORY_CHECK_SECONDS:
                world.check_memory()  # takes milliseconds, so it is left out of normal batches


class _TimeLeft:
    """The time that a world has left for an answer. Compilation has its own deadline, so it does not count."""

    def __init__(self, world: World, limit: float, timer: TimeSource, outside: Callable[[], float]) -> None:
        """limit: seconds from now."""
        self._outside = outside
        self._world = world
        self._limit = limit
        self._timer = timer
        self._started = timer.monotonic()
        self._compiled_before = self._compiled
        self._without_core_before: float | None = None
        self._outside_before = self._half_time = 0.0
        self.elapsed = 0.0
        """Seconds from the start until the last call of `seconds`."""

    @property
    def _compiled(self) -> float:
        """Seconds of compilation since the world's start, as its ranks report, up to their deadline in total."""
        return min(self._world.wires.compile_seconds, deadlines.COMPILE)

    def seconds(self) -> float:
        """The seconds that are left; negative when the time is over.

        Time without a core does not count. Reading it disturbs a batch, so the first reading is at half time. The second half
        begins with it, because this process may have had no core itself until then.
        """
        self.elapsed = self._timer.monotonic() - self._started
        left = self._limit - self.elapsed + self._compiled - self._compiled_before
        if left >= (half := self._limit / 2):
            return left
        without_core = self._world.processes.waited_for_cores()
        if self._without_core_before is None:
            self._without_core_before = without_core
            self._outside_before, self._half_time = self._outside(), self._timer.monotonic()
            self._limit += half - left
            return half
        return left + min(without_core - self._without_core_before, deadlines.WITHOUT_CORE)

    def machine_too_busy(self) -> bool:
        """Whether the ranks waited for a core most of the time since half time, and programs outside the arena used the cores."""
        processes = self._world.processes
        seconds = self._timer.monotonic() - self._half_time
        waited = processes.waited_for_cores() - (self._without_core_before or 0.0)
        if waited < seconds / 2 or processes.give_way():
            return False
        return too_busy(self._outside() - self._outside_before, seconds)


def _printed(world: World) -> str:
    """The end of what the ranks of a world printed."""
    return "".join(map(world.wires.said_by, range(world.ranks)))[-4000:]


STDIN = 0


class EnginePipe:
    """Commands wait in a queue. A cancel and the end of the pipe take effect when they are read."""

    def __init__(self, selector: selectors.BaseSelector, timer: TimeSource) -> None:
        """selector: `open` registers stdin there."""
        self.selector = selector
        self.timer = timer
        self.commands: deque[Any] = deque()
        self.hung_up = False
        """Whether the engine has closed the pipe."""
        self.running: str | None = None
        """The id of the run that is judged now."""
        self.cancelled = False
        """Whether that run was cancelled."""
        self._rest = b""

    def open(self) -> None:
        """Reads commands from now on, whenever the selector is polled."""
        self.selector.register(STDIN, selectors.EVENT_READ, self._read)

    def stopped(self) -> bool:
        """Whether the run was cancelled or the engine is gone."""
        return self.cancelled or self.hung_up

    def begin_run(self, run_id: str) -> None:
        """Notes the run that is judged from now on."""
        self.running, self.cancelled = run_id, False

    def end_run(self) -> None:
        """No run is judged from now on, so no cancel has an effect."""
        self.running, self.cancelled = None, False

    def emit(self, event: Any) -> None:
        """Writes an event. One of a run has the id of the run in progress, if it names none."""
        nameless = isinstance(event, events.RunEvent) and not event.run_id
        names = {"run_id": self.running or ""} if nameless else {}
        stamped = msgspec.structs.replace(event, at=self.timer.monotonic(), **names)
        try:
            sys.stdout.buffer.write(events.encode(stamped) + b"\n")
            sys.stdout.buffer.flush()
        except (BrokenPipeError, ValueError):
            self.hung_up = True

    def _read(self) -> None:
        data = os.read(STDIN, 1 << 20)
        if not data:
            self.hung_up = True
            self.selector.unregister(STDIN)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in filter(None, map(bytes.strip, lines)):
            try:
                self.hear(events.decode_command(line))
            except msgspec.MsgspecError as error:
                self.emit(Fatal(message=f"cannot read a command: {error}"))

    def hear(self, command: Any) -> None:
        """Handles a cancel at once, and queues all other commands."""
        if isinstance(command, events.Cancel):
            self.cancelled |= self.running == command.run_id
            kept = [c for c in self.commands if not (isinstance(c, events.Run) and c.run_id == command.run_id)]
            if len(kept) < len(self.commands):
                self.commands = deque(kept)
                self.emit(Cancelled(run_id=command.run_id, phase="waiting"))
        else:
            self.commands.append(command)
