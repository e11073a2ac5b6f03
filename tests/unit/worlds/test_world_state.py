"""The states of a world: only legal moves are made."""

from fixed_examples import examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import ORDERS
from sandbox.worlds.failures import HarnessFailed
from sandbox.worlds.world import BUSY, IDLE, MOVES, State, after

ANSWERS = [kind for kind in Kind if kind not in ORDERS]
DUE = {
    State.STARTING: {Kind.READY},
    State.OPENING: {Kind.OPENED},
    State.ARMING: {Kind.ARMED, Kind.CHOSEN},
    State.ARMED: {Kind.CHOSEN},
    State.RUNNING: {Kind.QUEUED, Kind.DONE},
}
"""The answers that move a world, by its state."""
COURSE = {
    State.STARTING: Kind.READY,
    State.READY: Kind.OPEN,
    State.OPENING: Kind.OPENED,
    State.OPENED: Kind.ARM,
    State.ARMING: Kind.ARMED,
    State.ARMED: Kind.GO,
    State.RUNNING: Kind.QUEUED,
    State.QUEUED: Kind.FINISH,
}
"""The message that advances a run, by its state."""


class Lifetime(RuleBasedStateMachine):
    """One world, and a simple independent model of its state to compare with."""

    @initialize()
    def start(self) -> None:
        self.state = State.STARTING
        self.problem = self.batch = self.gated = False

    def take(self, kind: Kind) -> bool:
        """Makes a move; returns whether it was legal."""
        try:
            self.state = after(self.state, kind)
        except HarnessFailed:
            return False
        return True

    @rule(kind=st.sampled_from(sorted(ORDERS)))
    def order(self, kind: Kind) -> None:
        before = self.state
        if not self.take(kind):
            return
        assert before not in (State.STARTING, State.OPENING, State.DEAD)
        match kind:
            case Kind.OPEN:
                assert before in IDLE | {State.READY}
                self.problem = self.batch = False
            case Kind.GO:
                assert self.batch, "nothing runs that was not assembled"
                self.gated = False
            case Kind.FINISH:
                assert self.gated, "no gate opens that nothing waits behind"
            case Kind.SYNC:
                assert self.problem
            case Kind.ARM | Kind.LOAD | Kind.MEASURE_BASELINE | Kind.MAKE_ARENAS | Kind.MAP_ARENAS:
                assert before in IDLE
                self.batch = False
            case _:
                assert before in IDLE | {State.QUEUED}

    @rule(kind=st.sampled_from(ANSWERS))
    def answer(self, kind: Kind) -> None:
        before = self.state
        legal = self.take(kind)
        assert legal == (kind not in MOVES or kind in DUE.get(before, set()))
        if legal and kind in MOVES:
            self.problem = self.problem or kind is Kind.OPENED
            self.batch = self.batch or kind in (Kind.ARMED, Kind.CHOSEN)
            self.gated = kind is Kind.QUEUED
        elif legal:
            assert self.state is before

    @rule()
    def go_on(self) -> None:
        """Makes the next move of a run, so that long sequences are common."""
        kind = COURSE[self.state]
        (self.order if kind in ORDERS else self.answer)(kind)

    @invariant()
    def a_busy_world_has_a_problem(self) -> None:
        if self.state in BUSY | IDLE:
            assert self.problem
        if self.state in (State.ARMED, State.RUNNING, State.QUEUED):
            assert self.batch


def test_no_course_of_messages_is_inconsistent() -> None:
    run_state_machine_as_test(Lifetime, settings=examples(100, steps=40))
