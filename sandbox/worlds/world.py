"""A world: W ranks that share one state, take orders and answer."""

import contextlib
import os
import selectors
import socket
import time
from collections import deque
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

BEGIN_SECONDS, BEGIN_CHECK_SECONDS = 0.05, 100e-6
"""Seconds that a released rank has to begin, and seconds between two checks of it."""


class World:
    """One world. Its processes and its connections to the ranks are separate objects: `processes` and `wires`."""

    def __init__(
        self,
        spec: WorldSpec,
        processes: WorldProcess,
        wires: Wires,
        new_gate: Callable[[int], GatePage] = GatePage,
        timer: TimeSource = time,
    ) -> None:
        """Takes over processes that have been started. Each rank then reports READY.

        new_gate(ranks): makes the starting gate.
        """
        self.spec = spec
        self.ranks = spec.ranks
        self.trusted = spec.trusted
        self._timer = timer
        self.started = timer.monotonic()
        self.processes = processes
        self.wires = wires
        self._new_gate = new_gate
        self.state = State.STARTING
        self._opened: tuple[OpenProblem, Stamps] | None = None
        self.problems = 0
        """Number of problems opened so far."""
        self.gate: GatePage | None = None
        self._owed: deque[Kind] = deque()
        """Answers that are due and that nobody waits for yet, in their order. The next wait takes them first."""

    @classmethod
    def start(
        cls,
        spec: WorldSpec,
        selector: selectors.BaseSelector,
        heard: Callable[["World", int, str], None],
        servers: ForkServers,
    ) -> "World":
        """Starts a world's processes.

        heard(world, rank, text): called with the printed text of a rank. servers: fork the world if its jail allows it.

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
        """Sends an order to all ranks. Raises HarnessFailed if the order is illegal in this state."""
        self.tell_each([order] * self.ranks, [fds] * self.ranks)

    def tell_each(self, orders: Sequence[Order], fds: Sequence[tuple[int, ...]] | None = None) -> None:
        """Sends each rank an order of the same kind with descriptors. Raises as `tell`."""
        self._move(orders[0].kind)
        self.wires.send(orders, fds)

    def open(self, order: OpenProblem, stamps: Stamps) -> None:
        """Orders all ranks to open a problem. stamps: the times of its files."""
        self.tell(order)
        self._opened = (order, stamps)
        self.problems += 1

    def opens(self, order: OpenProblem, stamps: Stamps) -> bool:
        """Whether this problem is open or being opened, with this setting and these times of its files."""
        return self._opened == (order, stamps)

    def has_open(self, order: OpenProblem, stamps: Stamps) -> bool:
        """Whether this problem is open, with this setting and these times of its files."""
        return self.state in IDLE | BUSY and self.opens(order, stamps)

    def make_gate(self) -> None:
        """Makes the starting gate and orders all ranks to map it. They answer with GATED."""
        assert self.gate is None
        self.gate = self._new_gate(self.ranks)
        self.tell(MapGate(), (self.gate.fd,))

    def go(self) -> int:
        """Releases all ranks at once. Returns the time right before that, in perf_counter_ns.

        Stopped processes continue after the clock is read, so that they never run before this time.
        """
        self._move(Kind.GO)
        self.wires.require_silence()
        started = self._timer.perf_counter_ns()
        self.wires.release()
        self.processes.resume()
        return started

    def go_apart(self, order: Sequence[int], before: Callable[[int], None]) -> None:
        """Releases one rank after another, each once the previous one has begun. before(rank): called before each."""
        self._move(Kind.GO)
        self.wires.require_silence()
        self.processes.resume(held=order)
        for rank in order:
            before(rank)
            self.wires.release([rank])
            self.processes.resume_rank(rank)
            self.await_begun([rank])

    def await_begun(self, ranks: Sequence[int]) -> None:
        """Waits until released ranks have begun, but at most BEGIN_SECONDS, because a rank may have no free core."""
        until = self._timer.monotonic() + BEGIN_SECONDS
        while not all(map(self.wires.has_begun, ranks)) and self._timer.monotonic() < until:
            self._timer.sleep(BEGIN_CHECK_SECONDS)

    def calls_begun(self) -> int:
        """The number of calls that have begun in the batch, on the rank that reports most."""
        return max(self.calls_begun_by_rank())

    def calls_begun_by_rank(self) -> list[int]:
        """The number of calls that have begun in the batch, as each rank reports it."""
        return self.wires.calls_begun()

    # --- answers ---------------------------------------------------------------------------------------------

    def owes(self, kind: Kind) -> None:
        """Notes that an answer of this kind is due from every rank. The next wait for another takes it first."""
        self._owed.append(kind)

    def last_owed(self) -> Kind | None:
        """The last of these answers, for which the caller waits, and so for all before it; None if none is due."""
        return self._owed.pop() if self._owed else None

    def missing(self, kind: Kind) -> list[int]:
        """Ranks whose next answer is missing. Raises WorldFailed if a rank sent something else or is gone."""
        while self._owed:
            if late := self.wires.missing(self._owed[0], self.processes.killed):
                return late
            self.take(self._owed.popleft())
        return self.wires.missing(kind, self.processes.killed)

    def take(self, kind: Kind) -> list[Received]:
        """Takes the answer of every rank; none may be missing. Raises HarnessFailed if it is illegal in this state."""
        self._move(kind)
        if kind is Kind.READY:
            self.processes.find_ranks()
        return self.wires.take()

    def take_synced(self, number: int) -> bool:
        """Drops all answers up to the `Sync` with this number. Returns False if a rank has not answered it yet.

        Raises WorldFailed if a rank is gone.
        """
        found = self.wires.take_synced(number)
        if found:
            self._owed.clear()
            self._move(Kind.SYNCED)
        return found

    def check_memory(self) -> None:
        """Fails the world if it exceeds its memory limit."""
        if excess := self.processes.excess():
            self.wires.fail(WorldFailed("NO_MEMORY", 0, text=excess))

    def close(self) -> bool:
        """Kills every process of the world. Returns whether all are gone."""
        if self.state is State.DEAD:
            return True
        self.state = State.DEAD
        gone = self.processes.close()
        self.wires.close()
        if self.gate is not None:
            self.gate.close()
        return gone

    def _move(self, kind: Kind) -> None:
        self.state = after(self.state, kind)
