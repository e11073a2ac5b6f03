"""Tests that a kernel works on its own inputs, at its own time, in batches that it cannot tell from timed ones.

All inputs of a batch are complete at GO, on all ranks, so that nothing but the kernel is on the clock. A kernel could use that:
do the work of later calls in an earlier one, or read its peers' inputs without waiting for its peers. So some of a run's batches,
drawn at random once they have been prepared, are not timed. There are three kinds:

- apart: the ranks start one after another, each with its inputs.
- replaced: the batch is stopped, and inputs of calls that no rank has begun are replaced.
- held: one rank is stopped while the others run on, and the inputs of its next call are replaced. A rank that needs them waits
  for that call. A rank that exchanged them in an earlier call does not, and its output is wrong.

Calls that have begun are counted by the ranks, which run the kernel. A count that is too high leaves nothing to replace, so
nothing is proven; one that is too low replaces inputs that were used, so outputs are wrong. Both harm the kernel alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from sandbox.protocol.verdict import Verdict
from sandbox.timing.turns import Batch, TimedSide, Turns
from sandbox.worlds.exchange import Failed
from sandbox.worlds.world import World

WANTED_APART, WANTED_REPLACED, WANTED_HELD = 2, 3, 2
"""Batches of each kind in a run, of each kernel."""
SHARE = 0.15
"""Of the batches, those that are drawn as long as there were not enough."""
MOST_TRIES, MOST_HELD_TRIES = 30, 10
"""A batch that had ended when it or a rank was to be stopped, or has no other inputs that fit, is tried again, but no more often
in all."""
LEAST_CALLS, DRAWS = 2, 4
"""Calls of a batch that is stopped: one call has no later one. Draws until one fits in the place of another."""
STOPS = 4
"""Of a batch: a kernel that works one call ahead has done so at every other of them."""
STOP_BY = 0.03, 0.5
"""A batch is stopped at the latest after this share of its length."""
LAUNCHED_SECONDS, LAUNCHED_TIMES = 0.01, 2.0
"""What a stopped batch had launched on a GPU gets so much time, and so many times what its calls take."""
LOOK_SECONDS, SPIN_SECONDS = 50e-6, 1e-6
"""Between two looks at how far a batch is."""
APART_SECONDS = 0.001, 0.004
"""Between the starts of two ranks."""
MOST_MISFITS = 3
"""Iterations in which a rank's inputs could not be replaced alone, until it is held no more."""
HELD_SECONDS, HELD_CALLS = 0.001, 2
"""The others run on for so long, and as long as so many calls take, or until one is done with the call."""
COMPARED = 2
"""First calls of a batch whose ranks started apart that are compared, and one more."""
NOT_ITS_OWN = (
    "; the inputs of this call were replaced while an earlier call ran, and a call may work on its own inputs alone"
)
OF_A_PEER = (
    "; rank {rank} was stopped before this call and its input replaced, and a call may use no copy of an earlier call"
)
NOT_YET = "; ranks had started one after another, and a rank's inputs are complete only when it has started"


@dataclass
class Due:
    """What is still to be tried of one kernel."""

    apart: int = 0
    replaced: int = 0
    held: int = 0
    tries: int = 0
    """Batches that were to be stopped."""
    held_tries: int = 0
    """Batches of which a rank was to be stopped."""
    compared: dict[str, list[int]] = field(default_factory=dict)
    """By what is said where they are wrong: slots of this round whose outputs have still to be compared."""

    @property
    def kinds(self) -> list[str]:
        """Of batches that were not tried often enough."""
        found = {
            "apart": self.apart > 0,
            "replaced": self.replaced > 0 and self.tries < MOST_TRIES,
            "held": self.held > 0 and self.held_tries < MOST_HELD_TRIES,
        }
        return [kind for kind, is_due in found.items() if is_due]


class Drawn(NamedTuple):
    """A test, and the kernel that it is of."""

    side: TimedSide
    due: Due
    kind: str


class Probes:
    """The tests of one run, by one of its clocks."""

    def __init__(self, turns: Turns, apart: int = WANTED_APART) -> None:
        self.turns = turns
        self.chance = turns.random
        able = turns.exchange.sealed
        peers = turns.setting.world > 1
        due = (apart * peers, WANTED_REPLACED, WANTED_HELD * peers) if able else ()
        self.due = [Due(*due) for _ in turns.kernels]
        self.hurry = False
        """Whether every batch is drawn while something is due."""

    def open(self, calls: int) -> bool:
        """Whether something is due that batches of so many calls can show."""
        return self.left(calls) > 0

    def left(self, calls: int) -> int:
        """Batches of so many calls that are still to be tried, of all kernels, if none of them fails."""
        return sum(getattr(due, kind) for due in self.due for kind in self._kinds(due, calls))

    @property
    def proven(self) -> bool:
        """Whether inputs of every kernel were replaced: of all ranks as often as wanted, of one rank once."""
        return not any(due.replaced or (due.held == WANTED_HELD and self._can_be_held) for due in self.due)

    @property
    def _can_be_held(self) -> list[int]:
        """The ranks whose inputs can be replaced alone, as far as is known."""
        misfits = self.turns.exchange.prepared.misfits
        return [rank for rank in range(self.turns.setting.world) if misfits[rank] < MOST_MISFITS]

    def draw(self, calls: int) -> Drawn | None:
        """A kernel and a test, if this batch of so many calls is not timed."""
        if not self.open(calls):
            return None
        if not self.hurry and self.chance.random() >= SHARE:
            return None
        found = [
            Drawn(side, due, kind)
            for side, due in zip(self.turns.kernels, self.due, strict=True)
            for kind in self._kinds(due, calls)
        ]
        return self.chance.choice(found) if found else None

    def _kinds(self, due: Due, calls: int) -> list[str]:
        possible = {
            "apart": True,
            "replaced": calls >= LEAST_CALLS,
            "held": calls >= LEAST_CALLS and bool(self._can_be_held),
        }
        return [kind for kind in due.kinds if possible[kind]]

    def run(self, drawn: Drawn, batch: Batch, seconds: float, turn: int) -> None:
        """Runs a drawn batch. seconds: a call takes; turn: as timed batches have it."""
        side, due, kind = drawn
        world = side.worlds[0]
        self.turns.get_ready(side, world, batch, turn)
        with self.turns.watched(self.turns.stopped_kernels(world)):
            if kind == "apart":
                self._start_apart(side, world, batch)
                due.apart -= 1
                first, end = batch.first, batch.first + batch.calls
                slots = {*range(first, min(first + COMPARED, end)), self.chance.randrange(first, end)}
                due.compared.setdefault(NOT_YET, []).extend(slots)
            else:
                self.turns.fill_in(side, world, batch, "call")
                world.go()
                (self.hold if kind == "held" else self.replace)(side, due, world, batch, seconds)
            limit = self.turns.batch_limit(batch.calls)
            side.exchange.await_done(world, limit, stops=True)
        self.turns.take(side, batch)

    def compare(self) -> None:
        """Compares the outputs of this round's drawn batches with the oracle.

        Raises:
            Failed: with the side whose outputs are wrong.
        """
        self.turns.stop_all()
        for side, due in zip(self.turns.kernels, self.due, strict=True):
            for hint, slots in due.compared.items():
                side.exchange.require_right(sorted(set(slots)), hint=hint)
            due.compared.clear()

    # --- ranks that start apart ----------------------------------------------------------------------------------

    def _start_apart(self, side: TimedSide, world: World, batch: Batch) -> None:
        """Starts the ranks one after another, in random order."""
        self.turns.stop(side, world)
        order = list(range(world.ranks))
        self.chance.shuffle(order)

        def before(rank: int) -> None:
            if rank != order[0]:
                self.turns.timer.sleep(self.chance.uniform(*APART_SECONDS))
            side.exchange.reveal(batch.first, batch.calls, rank=rank)

        world.go_apart(order, before)

    # --- inputs that are replaced --------------------------------------------------------------------------------

    def replace(
        self,
        side: TimedSide,
        due: Due,
        world: World,
        batch: Batch,
        seconds: float,
        stopped: Callable[[], None] = lambda: None,
    ) -> None:
        """Stops a batch that runs a few times, and replaces inputs of later calls; lets it go on.

        stopped(): called once, when it has been stopped for the first time.
        """
        due.tries += 1
        replaced: set[int] = set()
        begun, shown = 0, False
        for number in range(STOPS):
            self._wait(world, batch.calls, begun, seconds)
            self.turns.stop(side, world)
            begun, before = min(world.calls_begun(), batch.calls), begun
            if number == 0:
                stopped()
            if self.turns.kind.has_gate:
                # What was launched since the last stop goes on, and must have read its inputs before others take their place.
                self.turns.timer.sleep(LAUNCHED_SECONDS + LAUNCHED_TIMES * (begun - before) * seconds)
            found = self._replace_from(side, batch, begun)
            world.processes.resume()
            replaced |= found
            shown |= bool(found) and begun > 0
            if not found:
                break
        if shown:
            due.replaced -= 1
        if replaced:
            due.compared.setdefault(NOT_ITS_OWN, []).extend(replaced)

    def _wait(self, world: World, calls: int, begun: int, seconds: float) -> None:
        """Until calls have begun, as many as are drawn; but no longer than a drawn share of the batch."""
        wanted = self.chance.randint(begun + 1, max(calls - 1, begun + 1))
        until = self.turns.timer.monotonic() + calls * seconds * self.chance.uniform(*STOP_BY)
        while world.calls_begun() < wanted and self.turns.timer.monotonic() < until:
            self.turns.timer.sleep(self._look)

    @property
    def _look(self) -> float:
        """Seconds between two looks at the counts of calls. CPU ranks need the cores themselves."""
        return SPIN_SECONDS if self.turns.kind.has_gate else LOOK_SECONDS

    def _replace_from(self, side: TimedSide, batch: Batch, begun: int) -> set[int]:
        """Replaces inputs of calls that have not begun; returns their slots, none where no others fit."""
        later = range(batch.first + begun, batch.first + batch.calls)
        if not later:
            return set()
        for rank, written in enumerate(side.exchange.written_ahead(later[0], len(later))):
            if written:
                text, verdict = "an output was written before the call that returns it", Verdict.PROTOCOL
                raise Failed(verdict, side.exchange.failure(text, verdict, rank=rank), side.exchange.side)
        replaced = set()
        for slot in sorted({later[0], self.chance.choice(later)}):
            if side.exchange.replace(slot, DRAWS):
                side.exchange.reveal(slot, 1)
                replaced.add(slot)
        return replaced

    # --- one rank that is stopped ------------------------------------------------------------------------------

    def hold(
        self,
        side: TimedSide,
        due: Due,
        world: World,
        batch: Batch,
        seconds: float,
        stopped: Callable[[], None] = lambda: None,
    ) -> None:
        """Stops one rank of a batch that runs, and replaces the inputs of its next call; lets it go on.

        stopped(): called when it has been stopped.
        """
        due.held_tries += 1
        rank = self.chance.choice(self._can_be_held)
        self._await_call(world, rank, batch.calls, seconds)
        try:
            self.turns.stop(side, world, rank)
            stopped()
            begun = min(world.calls_begun_by_rank()[rank], batch.calls)
            if begun < batch.calls:
                self._let_others_go_on(world, rank, begun, seconds)
                slot = batch.first + begun
                if side.exchange.replace_alone(slot, rank, DRAWS):
                    side.exchange.reveal(slot, 1, rank=rank)
                    due.held -= begun > 0
                    due.compared.setdefault(OF_A_PEER.format(rank=rank), []).append(slot)
        finally:
            world.processes.resume_rank(rank)

    def _await_call(self, world: World, rank: int, calls: int, seconds: float) -> None:
        """Until a rank is in a drawn call, the second one at least if there are more; but no longer than two batches take."""
        wanted = min(self.chance.randint(2, max(calls - 1, 2)) for _ in range(2)) if calls > 2 else 1
        until = self.turns.timer.monotonic() + 2 * calls * seconds
        while world.calls_begun_by_rank()[rank] < wanted and self.turns.timer.monotonic() < until:
            self.turns.timer.sleep(self._look)
        if calls == 2:
            self.turns.timer.sleep(self.chance.uniform(0.0, seconds / 2))

    def _let_others_go_on(self, world: World, rank: int, begun: int, seconds: float) -> None:
        """Lets the others run until one has done the call after `begun`, or until all that do without this rank could have."""

        def others() -> list[int]:
            counts = world.calls_begun_by_rank()
            return counts[:rank] + counts[rank + 1 :]

        behind = max(0, begun - min(others()))
        until = self.turns.timer.monotonic() + HELD_SECONDS + (HELD_CALLS + behind) * seconds
        while max(others()) < begun + 2 and self.turns.timer.monotonic() < until:
            self.turns.timer.sleep(self._look)
        if self.turns.kind.has_gate:  # the calls were launched, and take longer
            self.turns.timer.sleep(LAUNCHED_SECONDS + LAUNCHED_TIMES * (begun + 1) * seconds)
