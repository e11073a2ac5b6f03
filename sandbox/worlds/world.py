"""A world: W ranks that share one state, take orders and answer."""

import contextlib
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence, Set
from enum import Enum
from pathlib import Path
from typing import Any

from sandbox.protocol.events import Setting
from sandbox.protocol.frames import REPLIED, GatePage, Kind
from sandbox.protocol.messages import MapGate, OpenProblem, Order
from sandbox.worlds.deadlines import TimeSource
from sandbox.worlds.failures import HarnessFailed, WorldFailed
from sandbox.worlds.first_process import WorldSpec
from sandbox.worlds.fork_server import ForkServers
from sandbox.worlds.rank_wire import RankWire, Received
from sandbox.worlds.wires import Wires
from sandbox.worlds.world_process import WorldProcess


class State(Enum):
    """The state of a world. It can be stopped (`WorldProcess.pause`) in any state."""

    STARTING = "starting"
    """Its processes start: READY of every rank is due."""
    READY = "ready"
    """The process group is up; no problem is open."""
    OPENING = "opening"
    """Ordered to open a problem: OPENED is due."""
    OPENED = "opened"
    """A problem is open; no batch is assembled."""
    ARMING = "arming"
    """Ordered to assemble a batch: ARMED is due."""
    ARMED = "armed"
    """A batch is assembled. It can run more than once."""
    RUNNING = "running"
    """Ordered to run the batch: DONE is due; for a gated batch QUEUED comes first."""
    QUEUED = "queued"
    """The batch is queued behind the gate."""
    DEAD = "dead"
    """Its processes were killed."""


IDLE = frozenset({State.OPENED, State.ARMED})
"""A problem is open, and no rank is working."""
BUSY = frozenset({State.ARMING, State.RUNNING, State.QUEUED})


MOVES: dict[Kind, tuple[Set[State], State | None]] = {
    # Orders, when they are sent to all ranks.
    Kind.OPEN: (IDLE | {State.READY}, State.OPENING),
    Kind.MAKE_ARENAS: (IDLE, State.OPENED),
    Kind.MAP_ARENAS: (IDLE, State.OPENED),
    Kind.MAP_GATE: (IDLE, None),
    Kind.LOAD: (IDLE, State.OPENED),
    Kind.MEASURE_BASELINE: (IDLE, State.OPENED),
    Kind.MEASURE_PEAKS: (IDLE, None),
    Kind.MEASURE_TRANSFERS: (IDLE, None),
    Kind.DRAW: (IDLE, None),
    Kind.ARM: (IDLE, State.ARMING),
    Kind.WAKE: (IDLE, None),
    Kind.CHOOSE: ({State.ARMED}, None),
    Kind.REVEAL: (IDLE | {State.QUEUED}, None),
    Kind.GO: ({State.ARMED}, State.RUNNING),
    Kind.FINISH: ({State.QUEUED}, State.RUNNING),
    Kind.RECOPY: ({State.ARMED}, None),
    Kind.TAKE: (IDLE, None),
    Kind.COMPARE: (IDLE, None),
    Kind.CHECK_POISON: (IDLE, None),
    Kind.LOOK_AHEAD: (IDLE, None),
    Kind.DRAW_AGAIN: (IDLE, None),
    Kind.SYNC: (IDLE | BUSY, None),
    # Signals, when those of all ranks are taken.
    Kind.READY: ({State.STARTING}, State.READY),
    Kind.OPENED: ({State.OPENING}, State.OPENED),
    Kind.ARMED: ({State.ARMING}, State.ARMED),
    Kind.CHOSEN: ({State.ARMING, State.ARMED}, State.ARMED),
    Kind.QUEUED: ({State.RUNNING}, State.QUEUED),
    Kind.DONE: ({State.RUNNING}, State.ARMED),
}
"""The states in which a message is legal, and the state after it; None: the same. Replies and other signals are always legal."""


def after(state: State, kind: Kind) -> State:
    """The state of a world after a message was sent or taken. Raises HarnessFailed if it is illegal in this state."""
    allowed, next_state = MOVES.get(kind, (set(State), None))
    if state not in allowed:
        raise HarnessFailed(f"{kind.name} is illegal for a world that is {state.value}")
    return next_state or state


Opened = tuple[OpenProblem, tuple[int, ...]]
"""The order that opens a setting, and the times of the last changes of the problem's files, in nanoseconds."""

BEGIN_SECONDS, BEGIN_CHECK_SECONDS = 0.05, 100e-6
"""Seconds that a released rank has to begin, and seconds between two checks of it."""


def opening(setting: Setting) -> Opened:
    """What opens a setting, with the problem's files as they are now."""
    folder = Path(setting.problem_dir)
    times = tuple((folder / name).stat().st_mtime_ns for name in ("inputs.py", "baseline.py", "problem.toml"))
    return OpenProblem(setting), times


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
        self.went = 0
        """The time of the last GO to all ranks at once, in perf_counter_ns."""
        self._opened: Opened | None = None
        self.problems = 0
        """Number of problems opened so far."""
        self.gate: GatePage | None = None
        self.before_go: Sequence[Order[Any]] = ()
        """By rank, an order without an answer that is sent right before the next GO."""
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

    def tell(self, order: Order[Any], fds: tuple[int, ...] = ()) -> None:
        """Sends an order to all ranks. Raises HarnessFailed if the order is illegal in this state."""
        self.tell_each([order] * self.ranks, [fds] * self.ranks)

    def tell_each(self, orders: Sequence[Order[Any]], fds: Sequence[tuple[int, ...]] | None = None) -> None:
        """Sends each rank an order of the same kind with descriptors. Raises as `tell`."""
        self._move(orders[0].kind)
        self.wires.send(orders, fds)

    def open(self, setting: Setting) -> None:
        """Orders all ranks to open a setting's problem."""
        opened = opening(setting)
        self.tell(opened[0])
        self._opened = opened
        self.problems += 1

    def opens(self, setting: Setting) -> bool:
        """Whether this setting is open or being opened, with the problem's files as they are now."""
        return self._opened == opening(setting)

    def has_open(self, setting: Setting) -> bool:
        """Whether this setting is open, with the problem's files as they are now."""
        return self.state in IDLE | BUSY and self.opens(setting)

    def make_gate(self) -> None:
        """Makes the starting gate and orders all ranks to map it. They answer with GATED."""
        assert self.gate is None
        self.gate = self._new_gate(self.ranks)
        self.tell(MapGate(), (self.gate.fd,))

    def go(self) -> int:
        """Releases all ranks at once. Returns the time right before that, in perf_counter_ns.

        Stopped processes continue after the clock is read, so that they never run before this time.
        """
        self._prepare_go()
        self.went = self._timer.perf_counter_ns()
        self.wires.release()
        self.processes.resume()
        return self.went

    def _prepare_go(self) -> None:
        self._move(Kind.GO)
        self.wires.require_silence()
        if self.before_go:
            self.wires.send(self.before_go)
            self.before_go = ()

    def go_apart(self, order: Sequence[int], before: Callable[[int], None]) -> None:
        """Releases one rank after another, each once the previous one has begun. before(rank): called before each."""
        self._prepare_go()
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
        if kind not in REPLIED:
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
            self.state = State.OPENED
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
