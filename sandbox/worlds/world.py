"""One world as the referee sees it: W ranks that are in one state together, take orders and answer."""

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from sandbox.machine.time_source import TimeSource
from sandbox.protocol.frames import Kind
from sandbox.protocol.gate import GatePage
from sandbox.protocol.messages import MapGate, OpenProblem, Order
from sandbox.worlds.failures import WorldFailed
from sandbox.worlds.fork_server import ForkServers
from sandbox.worlds.rank_wire import RankWire, Received
from sandbox.worlds.state import BUSY, IDLE, State, after
from sandbox.worlds.stopping import Activity
from sandbox.worlds.wires import Wires
from sandbox.worlds.world_process import WorldProcess
from sandbox.worlds.world_spec import WorldSpec

Stamps = tuple[int, ...]
"""Times at which the files of a problem were changed, in nanoseconds."""

BEGIN_SECONDS, BEGIN_LOOK_SECONDS = 0.05, 100e-6
"""A rank that was released is waited for so long; how often it is looked whether it has begun."""


class Gate(Protocol):
    """The starting gate of a world. Of a real one it is a GatePage."""

    fd: int

    def shut(self) -> int: ...
    def open(self) -> int: ...
    def wait(self, seconds: float) -> int | None: ...
    def close(self) -> None: ...


class World:
    """W ranks behind lines. All methods are called from the referee's one thread."""

    def __init__(
        self,
        spec: WorldSpec,
        processes: WorldProcess,
        lines: Wires,
        new_gate: Callable[[int], Gate] = GatePage,
        timer: TimeSource = time,
    ) -> None:
        """A world whose processes have been started; they report READY on their own. See `start`.

        new_gate: makes the starting gate of so many ranks.
        """
        self.spec = spec
        self.ranks = spec.ranks
        self.trusted = spec.trusted
        self._timer = timer
        self.started = timer.monotonic()
        self.processes = processes
        self.lines = lines
        self._new_gate = new_gate
        self.state = State.STARTING
        self._opened: tuple[OpenProblem, Stamps] | None = None
        self.problems = 0
        """Number of problems opened so far."""
        self.gate: Gate | None = None

    @classmethod
    def start(
        cls,
        spec: WorldSpec,
        selector: selectors.BaseSelector,
        heard: Callable[["World", int, str], None],
        servers: ForkServers,
    ) -> "World":
        """Starts a world's processes. heard(world, rank, text): called with what a rank prints; servers: they may fork it.

        Raises OSError where this machine has no process, descriptor or memory left.
        """
        with contextlib.ExitStack() as inherited, contextlib.ExitStack() as undo:
            ranks, ends = [], []
            for rank in range(spec.ranks):
                wire, end = RankWire.connect(rank, spec.trusted)
                undo.callback(wire.close)
                for fd in end:
                    inherited.callback(os.close, fd)
                ranks.append(wire)
                ends.append(end)
            status, theirs = socket.socketpair()
            undo.callback(status.close)
            inherited.callback(theirs.close)
            process = WorldProcess.start(spec, ends, theirs.fileno(), servers)
            undo.pop_all()
        wires = Wires(ranks, status, selector, lambda rank, text: heard(world, rank, text))
        world = cls(spec, process, wires)
        return world

    @property
    def idle(self) -> bool:
        """Whether a problem is open and no rank is working."""
        return self.state in IDLE

    @property
    def rank_pids(self) -> list[int]:
        """The ranks' process ids as the referee sees them, once they are ready: found before a kernel can start processes."""
        return self.processes.rank_pids

    # --- orders ----------------------------------------------------------------------------------------------

    def tell(self, order: Order, fds: tuple[int, ...] = ()) -> None:
        """Sends an order to all ranks. Raises HarnessFailed if it is illegal in this state."""
        self.tell_each([order] * self.ranks, [fds] * self.ranks)

    def tell_each(self, orders: Sequence[Order], fds: Sequence[tuple[int, ...]] | None = None) -> None:
        """Sends each rank an order of the same kind, and descriptors with it. Raises as `tell`."""
        self._move(orders[0].kind)
        self.lines.send(orders, fds)

    def open(self, order: OpenProblem, stamps: Stamps) -> None:
        """Tells all ranks to open a problem. stamps: of the files that they read."""
        self.tell(order)
        self._opened = (order, stamps)
        self.problems += 1

    def opens(self, order: OpenProblem, stamps: Stamps) -> bool:
        """Whether this problem, setting and state of its files is open, or about to be."""
        return self._opened == (order, stamps)

    def has_open(self, order: OpenProblem, stamps: Stamps) -> bool:
        """Whether this problem, setting and state of its files is open."""
        return self.state in IDLE | BUSY and self.opens(order, stamps)

    def make_gate(self) -> None:
        """Makes the starting gate, and tells all ranks to map it: GATED is due."""
        assert self.gate is None
        self.gate = self._new_gate(self.ranks)
        self.tell(MapGate(), (self.gate.fd,))

    def go(self) -> int:
        """Releases all ranks at once; returns perf_counter_ns of the moment before.

        Stopped processes go on only afterwards: there is no moment in which they run and the clock does not.
        """
        self._move(Kind.GO)
        self.lines.require_silence()
        started = self._timer.perf_counter_ns()
        self.lines.release()
        self.resume()
        return started

    def go_apart(self, order: Sequence[int], before: Callable[[int], None]) -> None:
        """Releases one rank after another, each when the one before has begun. before(rank): called before each."""
        self._move(Kind.GO)
        self.lines.require_silence()
        self.processes.resume(held=order)
        for rank in order:
            before(rank)
            self.lines.release([rank])
            self.processes.resume_rank(rank)
            self.await_begun([rank])

    def await_begun(self, ranks: Sequence[int]) -> None:
        """Waits until ranks that were released have begun, but no longer than BEGIN_SECONDS: one may have no core."""
        until = self._timer.monotonic() + BEGIN_SECONDS
        while not all(map(self.lines.has_begun, ranks)) and self._timer.monotonic() < until:
            self._timer.sleep(BEGIN_LOOK_SECONDS)

    def calls_begun(self) -> int:
        """Calls of the batch that have begun on some rank, as far as the ranks themselves say."""
        return max(self.lines.calls_begun())

    # --- answers ---------------------------------------------------------------------------------------------

    def missing(self, kind: Kind) -> list[int]:
        """Ranks whose next answer is not there yet; raises WorldFailed when one says something else, or is gone."""
        return self.lines.missing(kind, self.processes.killed)

    def take(self, kind: Kind) -> list[Received]:
        """The answer of every rank, once none is missing. Raises HarnessFailed if it is illegal in this state."""
        self._move(kind)
        if kind is Kind.READY:
            self.processes.find_ranks()
        return self.lines.take()

    def take_synced(self, number: int) -> bool:
        """Whether every rank has answered the `Sync` of this number; then all answers before it are dropped.

        Raises WorldFailed where a rank is gone.
        """
        found = self.lines.take_synced(number)
        if found:
            self._move(Kind.SYNCED)
        return found

    def check_memory(self) -> None:
        """Fails the world when it holds more than its share; called while somebody waits for it."""
        if excess := self.processes.excess():
            self.lines.fail(WorldFailed("NO_MEMORY", 0, text=excess))

    # --- stopping and ending ---------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether its processes are stopped."""
        return self.processes.paused

    def halt(self) -> None:
        """Stops every process that is known, at once; `pause` stops those that were started meanwhile."""
        self.processes.halt()

    def pause(self) -> bool:
        """Stops every process of the world; of one without a kernel the ranks may be all that is stopped, as they are all that
        runs. Nothing where that was done. Returns whether one was still running that was not known before."""
        return self.processes.pause()

    def await_stopped(self) -> None:
        """Waits until everything that was told to has stopped. Raises CannotStop."""
        self.processes.await_stopped()

    def resume(self) -> None:
        """Lets stopped processes go on."""
        self.processes.resume()

    def activity(self) -> Activity:
        """What the stopped processes have done so far."""
        return self.processes.activity()

    def pin(self, rank: int, cores: Sequence[int]) -> None:
        """The first thread of a rank runs on these cores alone, and so do threads that it starts from now on; others stay."""
        self.processes.pin(rank, cores)

    def close(self) -> bool:
        """Kills every process of the world and forgets it; True when all are gone."""
        if self.state is State.DEAD:
            return True
        self.state = State.DEAD
        gone = self.processes.close()
        self.lines.close()
        if self.gate is not None:
            self.gate.close()
        return gone

    def _move(self, kind: Kind) -> None:
        self.state = after(self.state, kind)
