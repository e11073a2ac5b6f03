"""The states of a world: the legal moves in each, and the sequences of moves in a run."""

import itertools

import pytest

from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import ORDERS
from sandbox.worlds.failures import HarnessFailed
from sandbox.worlds.world import MOVES, State, after

OPENING = (Kind.READY, Kind.OPEN, Kind.OPENED)
CHECK = (Kind.MAP_ARENAS, Kind.MAPPED, Kind.LOAD, Kind.LOADED, Kind.ARM, Kind.ARMED, Kind.GO, Kind.DONE)
BATCH = (Kind.ARM, Kind.ARMED, Kind.WAKE, Kind.AWAKE, Kind.GO, Kind.DONE)
GATED = (Kind.ARM, Kind.ARMED, Kind.GO, Kind.QUEUED, Kind.FINISH, Kind.DONE)
TRUSTED = (
    Kind.MEASURE_BASELINE,
    Kind.BASELINE_MEASURED,
    Kind.MAKE_ARENAS,
    Kind.ARENAS_MADE,
    Kind.DRAW,
    Kind.DRAWN,
    Kind.REVEAL,
)


def through(*kinds: Kind, start: State = State.STARTING) -> State:
    for kind in kinds:
        start = after(start, kind)
    return start


def test_every_order_has_its_move():
    assert set(ORDERS) <= set(MOVES)


def test_a_run_goes_through_legal_moves_only():
    assert through(*OPENING) is State.OPENED
    assert through(*OPENING, *CHECK, *BATCH, *BATCH, Kind.GO, Kind.DONE) is State.ARMED
    assert through(*OPENING, *TRUSTED, *BATCH, Kind.COMPARE, Kind.COMPARED, Kind.CHECK_POISON) is State.ARMED
    assert through(*OPENING, *CHECK, Kind.MAP_GATE, Kind.GATED, *GATED, *GATED) is State.ARMED


def test_the_baseline_completes_inputs_while_its_own_batch_is_queued():
    assert through(*OPENING, *GATED[:4], Kind.REVEAL, Kind.REVEALED) is State.QUEUED


def test_a_contender_that_was_kept_takes_the_next_run_and_the_next_setting():
    assert through(*OPENING, *CHECK, *BATCH, *CHECK) is State.ARMED
    assert through(*OPENING, *CHECK, Kind.OPEN, Kind.OPENED) is State.OPENED


@pytest.mark.parametrize("at", range(1, len(GATED)))
def test_after_a_cancel_wherever_it_came_a_world_is_idle_once_it_has_answered(at: int):
    assert through(*OPENING, *GATED[:at], Kind.SYNC, Kind.SYNCED, *BATCH) is State.ARMED


@pytest.mark.parametrize(
    ("kinds", "illegal"),
    [
        ((), Kind.OPEN),
        ((Kind.READY,), Kind.ARM),
        ((Kind.READY, Kind.OPEN), Kind.OPEN),
        (OPENING, Kind.GO),
        ((*OPENING, Kind.ARM), Kind.GO),
        ((*OPENING, *BATCH[:-1]), Kind.ARM),
        ((*OPENING, *BATCH), Kind.DONE),
        ((*OPENING, *BATCH), Kind.FINISH),
    ],
)
def test_what_a_world_cannot_have_in_its_state_is_refused(kinds: tuple[Kind, ...], illegal: Kind):
    with pytest.raises(HarnessFailed, match=illegal.name):
        through(*kinds, illegal)


def test_nothing_is_legal_for_a_world_that_is_dead():
    for kind, state in itertools.product(ORDERS, [State.DEAD]):
        with pytest.raises(HarnessFailed):
            after(state, kind)
