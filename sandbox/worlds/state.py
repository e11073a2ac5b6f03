"""The states of a world, and the messages that move it from one to the next."""

from collections.abc import Set
from enum import Enum

from sandbox.protocol.frames import Kind
from sandbox.worlds.failures import HarnessFailed


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
    # Answers, when those of all ranks are taken.
    Kind.READY: ({State.STARTING}, State.READY),
    Kind.OPENED: ({State.OPENING}, State.OPENED),
    Kind.ARMED: ({State.ARMING}, State.ARMED),
    Kind.CHOSEN: ({State.ARMING, State.ARMED}, State.ARMED),
    Kind.QUEUED: ({State.RUNNING}, State.QUEUED),
    Kind.DONE: ({State.RUNNING}, State.ARMED),
    Kind.SYNCED: (IDLE | BUSY, State.OPENED),
}
"""The states in which a message is legal, and the state after it; None: the same. Other answers are always legal."""


def after(state: State, kind: Kind) -> State:
    """The state of a world after a message was sent or taken. Raises HarnessFailed if it is illegal in this state."""
    allowed, next_state = MOVES.get(kind, (set(State), None))
    if state not in allowed:
        raise HarnessFailed(f"{kind.name} is illegal for a world that is {state.value}")
    return next_state or state
