"""A world: W ranks that share one state, take orders and answer."""

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Sequence

from sandbox.machine.time_source import TimeSource
from sandbox.protocol.frames import Kind
from sandbox.protocol.gate import GatePage
from sandbox.protocol.messages import MapGate, OpenProblem, Order
from sandbox.worlds.failures import WorldFailed
from sandbox.worlds.fork_server import ForkServers
from sandbox.worlds.rank_wire import RankWire, Received
from sandbox.worlds.state import BUSY, IDLE, State, after
from sandbox.worlds.wires import Wires
from sandbox.worlds.world_process import WorldProcess
from sandbox.worlds.world_spec import WorldSpec

Stamps = tuple[int, ...]
"""Times of the last changes of a problem's files, in nanoseconds."""

BEGIN_SECONDS, BEGIN_LOOK_SECONDS = 0.05, 100e-6
"""Limit for the begin of a released rank, and the interval of the checks."""


class World:
    """One world. Its processes and its lines to the ranks are parts with methods of their own."""

    def __init__(
        self,
        spec: WorldSpec,
        processes: WorldProcess,
        lines: Wires,
        new_gate: Callable[[int], GatePage] = GatePage,
        timer: TimeSource = time,
    ) -> None:
        """A world whose processes have been started. They report READY.

        new_gate: makes the starting gate for so many ranks.
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
        self.gate: GatePage | None = None

    @classmethod
    def start(
        cls,
        spec: WorldSpec,
        selector: selectors.BaseSelector,
        heard: Callable[["World", int, str], None],
        servers: ForkServers,
    ) -> "World":
        """Starts a world's processes. heard(world, rank, text): called with prints of a rank. servers: may fork it.

        Raises OSError if the machine is out of processes, descriptors or memory.
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

    # --- orders ----------------------------------------------------------------------------------------------

    def tell(self, order: Order, fds: tuple[int, ...] = ()) -> None:
        """Sends an order to all ranks. Raises HarnessFailed if it is illegal in this state."""
        self.tell_each([order] * self.ranks, [fds] * self.ranks)

    def tell_each(self, orders: Sequence[Order], fds: Sequence[tuple[int, ...]] | None = None) -> None:
        """Sends each rank an order of the same kind with descriptors. Raises as `tell`."""
        self._move(orders[0].kind)
        self.lines.send(orders, fds)

    def open(self, order: OpenProblem, stamps: Stamps) -> None:
        """Tells all ranks to open a problem. stamps: of its files."""
        self.tell(order)
        self._opened = (order, stamps)
        self.problems += 1

    def opens(self, order: OpenProblem, stamps: Stamps) -> bool:
        """Whether this problem, setting and state of its files is open, or is being opened."""
        return self._opened == (order, stamps)

    def has_open(self, order: OpenProblem, stamps: Stamps) -> bool:
        """Whether this problem, setting and state of its files is open."""
        return self.state in IDLE | BUSY and self.opens(order, stamps)

    def make_gate(self) -> None:
        """Makes the starting gate and tells all ranks to map it. GATED is due."""
        assert self.gate is None
        self.gate = self._new_gate(self.ranks)
        self.tell(MapGate(), (self.gate.fd,))

    def go(self) -> int:
        """Releases all ranks at once; returns the time before in perf_counter_ns.

        Stopped processes are continued afterwards, so that they never run before the clock.
        """
        self._move(Kind.GO)
        self.lines.require_silence()
        started = self._timer.perf_counter_ns()
        self.lines.release()
        self.processes.resume()
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
        """Waits until released ranks have begun, at most BEGIN_SECONDS, because one may have no core."""
        until = self._timer.monotonic() + BEGIN_SECONDS
        while not all(map(self.lines.has_begun, ranks)) and self._timer.monotonic() < until:
            self._timer.sleep(BEGIN_LOOK_SECONDS)

    def calls_begun(self) -> int:
        """The most calls of the batch that a rank reports to have begun."""
        return max(self.calls_begun_by_rank())

    def calls_begun_by_rank(self) -> list[int]:
        """The calls of the batch that each rank reports to have begun."""
        return self.lines.calls_begun()

    # --- answers ---------------------------------------------------------------------------------------------

    def missing(self, kind: Kind) -> list[int]:
        """Ranks whose next answer is missing. Raises WorldFailed if a rank sent something else or is gone."""
        return self.lines.missing(kind, self.processes.killed)

    def take(self, kind: Kind) -> list[Received]:
        """Takes the answer of every rank, when none is missing. Raises HarnessFailed if it is illegal in this state."""
        self._move(kind)
        if kind is Kind.READY:
            self.processes.find_ranks()
        return self.lines.take()

    def take_synced(self, number: int) -> bool:
        """Whether every rank has answered the `Sync` of this number; then all answers before it are dropped.

        Raises WorldFailed if a rank is gone.
        """
        found = self.lines.take_synced(number)
        if found:
            self._move(Kind.SYNCED)
        return found

    def check_memory(self) -> None:
        """Fails the world if it exceeds its memory limit."""
        if excess := self.processes.excess():
            self.lines.fail(WorldFailed("NO_MEMORY", 0, text=excess))

    def close(self) -> bool:
        """Kills every process of the world. Returns whether all are gone."""
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
