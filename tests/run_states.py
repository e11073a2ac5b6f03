"""States of runs for tests."""

from collections.abc import Iterable

from arena.runs.run_state import RunState
from sandbox.protocol.events import AnyEvent


def fold(events: Iterable[AnyEvent]) -> RunState:
    """The state after all of `events`."""
    state = RunState()
    for event in events:
        state.apply(event)
    return state
