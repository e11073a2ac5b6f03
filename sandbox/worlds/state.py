"""The states of a world, and the messages that move it from one to the next."""

from enum import Enum
from typing import NamedTuple

from sandbox.protocol.frames import Kind
from sandbox.worlds.failures import HarnessFailed


class State(Enum):
    """Where a world is. It can be stopped (`World.pause`) in any state."""

    STARTING = "starting"
    """Its processes start: READY of every rank is due."""
    READY = "ready"
    """The process group is up; no problem is open."""
    OPENING = "opening"
    """Told to open a problem: OPENED is due."""
    OPENED = "opened"
    """A problem is open; no batch is assembled."""
    ARMING = "arming"
    """Told to assemble a batch: ARMED is due."""
    ARMED = "armed"
    """A batch is assembled: it can be run, more than once."""
    RUNNING = "running"
    """Told to run the batch: DONE is due, behind the gate QUEUED first."""
    QUEUED = "queued"
    """The batch is queued behind the gate."""
    DEAD = "dead"
    """Its processes were killed."""


IDLE = frozenset({State.OPENED, State.ARMED})
"""A problem is open, and no rank has anything to do."""
BUSY = frozenset({State.ARMING, State.RUNNING, State.QUEUED})


class Move(NamedTuple):
    """In which states a message may be sent or taken, and the state after it; None: the same."""

    allowed: frozenset[State]
    to: State | None = None


def _in(*states: State) -> frozenset[State]:
    return frozenset(states)


MOVES: dict[Kind, Move] = {
    # Orders, when they are sent to all ranks.
    Kind.OPEN: Move(IDLE | {State.READY}, State.OPENING),
    Kind.MAKE_ARENAS: Move(IDLE, State.OPENED),
    Kind.MAP_ARENAS: Move(IDLE, State.OPENED),
    Kind.MAP_GATE: Move(IDLE),
    Kind.LOAD: Move(IDLE, State.OPENED),
    Kind.PROBE: Move(IDLE, State.OPENED),
    Kind.MEASURE_PEAKS: Move(IDLE),
    Kind.DRAW: Move(IDLE),
    Kind.ARM: Move(IDLE, State.ARMING),
    Kind.WAKE: Move(IDLE),
    Kind.CHOOSE: Move(_in(State.ARMED)),
    Kind.REVEAL: Move(IDLE | {State.QUEUED}),
    Kind.GO: Move(_in(State.ARMED), State.RUNNING),
    Kind.FINISH: Move(_in(State.QUEUED), State.RUNNING),
    Kind.RECOPY: Move(_in(State.ARMED)),
    Kind.TAKE: Move(IDLE),
    Kind.COMPARE: Move(IDLE),
    Kind.CHECK_POISON: Move(IDLE),
    Kind.LOOK_AHEAD: Move(IDLE),
    Kind.DRAW_AGAIN: Move(IDLE),
    Kind.SYNC: Move(IDLE | BUSY),
    # Answers, when those of all ranks are taken.
    Kind.READY: Move(_in(State.STARTING), State.READY),
    Kind.OPENED: Move(_in(State.OPENING), State.OPENED),
    Kind.ARMED: Move(_in(State.ARMING), State.ARMED),
    Kind.QUEUED: Move(_in(State.RUNNING), State.QUEUED),
    Kind.DONE: Move(_in(State.RUNNING), State.ARMED),
    Kind.SYNCED: Move(IDLE | BUSY, State.OPENED),
}
"""Any other answer moves nothing."""


class IllegalMove(HarnessFailed):
    """An order or an answer that a world in its state cannot have."""


def after(state: State, kind: Kind) -> State:
    """The state of a world once this message was sent or taken. Raises IllegalMove."""
    move = MOVES.get(kind)
    if move is None:
        return state
    if state not in move.allowed:
        raise IllegalMove(f"{kind.name} is not for a world that is {state.value}")
    return move.to or state
