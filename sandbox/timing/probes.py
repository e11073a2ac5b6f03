"""Batches that are not timed, and tell whether each call works on its own inputs, at its own time.

All inputs of a batch are complete at GO, on all ranks, so that nothing but the kernel is on the clock. A kernel could use that:
do the work of later calls in an earlier one, or read its peers' inputs without waiting for its peers. So now and then a batch
that looks like any other is stopped and the inputs of calls that have not begun are replaced, and in another one the ranks start
one after another, each with its inputs.
"""

from sandbox.protocol.verdict import Verdict
from sandbox.timing.turns import Batch, TimedSide, Turns
from sandbox.worlds.exchange import Failed

WANTED_APART, WANTED_REPLACED = 2, 3
"""Batches of either kind in a run, of each kernel."""
MOST_TRIES = 20
"""A batch that had ended when it was to be stopped, or has no other inputs that fit, is tried again, but no more often in all."""
SHARE = 0.3
"""Of the rounds, those after which one may come."""
STOPS = 4
"""Of a batch: a kernel that works one call ahead has done so at every other of them."""
BETWEEN_STOPS = 0.03, 0.3
"""In shares of the batch's length."""
APART_SECONDS = 0.001, 0.004
"""Between the starts of two ranks."""
APART_CALLS = 3
LEAST_CALLS, DRAWS = 4, 4
"""Calls of a batch that is stopped; draws until one fits in the place of another."""
MANY_CALLS, MANY_SECONDS, TINY_SECONDS = 64, 0.1, 1e-6
"""A batch that is stopped has so many calls, unless they would take longer than so much: the more there are, the longer a kernel
that does their work ahead needs between reading the first of their inputs and returning the last of their outputs."""
NOT_ITS_OWN = "; the inputs of this call were replaced while an earlier call ran, and a call may work on its own inputs alone"
NOT_YET = "; ranks had started one after another, and a rank's inputs are complete only when it has started"


class Probes:
    """The batches of this kind in one run."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.chance = turns.random
        able = turns.kind.stops_batches and turns.exchange.sealed
        self.apart_due = WANTED_APART if able and turns.setting.world > 1 else 0
        self.replaced_due = (
            WANTED_REPLACED if able and turns.exchange.stage.layout.slots >= LEAST_CALLS else 0
        )
        self.tries = 0
        """To stop a batch."""

    def after_round(self, calls: int, seconds: tuple[float, float]) -> None:
        """Perhaps one, in rounds that nobody can foretell.

        calls: of a batch; seconds: a call takes on (the baseline's, the contender's) side.
        """
        if self.due and self.chance.random() < SHARE:
            self._one(calls, seconds)

    def finish(self, calls: int, seconds: tuple[float, float]) -> None:
        """Those that are still due. Arguments as `after_round`."""
        while self.due:
            self._one(calls, seconds)

    @property
    def due(self) -> list[str]:
        """The kinds of which there were not enough."""
        tries = self.tries < MOST_TRIES
        return ["apart"] * (self.apart_due > 0) + ["replaced"] * (self.replaced_due > 0 and tries)

    def _one(self, calls: int, seconds: tuple[float, float]) -> None:
        if self.chance.choice(self.due) == "apart":
            for side in self.turns.kernels:
                self._apart(side)
            self.apart_due -= 1
            return
        self.tries += 1
        stopped = [
            self._replaced(side, max(calls, LEAST_CALLS), each)
            for side, each in zip(self.turns.sides, seconds, strict=True)
            if side in self.turns.kernels
        ]
        self.replaced_due -= all(stopped)

    def _ready(self, side: TimedSide, calls: int) -> None:
        """Has a kernel make ready for a batch on fresh inputs, which are not complete yet, and stops it."""
        world = side.worlds[0]
        self.turns.draw(calls)
        self.turns.get_ready(side, world, Batch(0, calls), 0)
        self.turns.stop(side, world)

    def _apart(self, side: TimedSide) -> None:
        """A batch whose ranks start one after another, in random order."""
        world, calls = side.worlds[0], min(APART_CALLS, self.turns.exchange.stage.layout.slots)
        self._ready(side, calls)
        order = list(range(world.ranks))
        self.chance.shuffle(order)

        def before(rank: int) -> None:
            if rank != order[0]:
                self.turns.timer.sleep(self.chance.uniform(*APART_SECONDS))
            side.exchange.reveal(0, calls, rank=rank)

        world.go_apart(order, before)
        side.exchange.await_done(world, self.turns.limits.batch)
        self.turns.stop_all()
        side.exchange.require_right(range(calls), hint=NOT_YET)

    def _replaced(self, side: TimedSide, calls: int, seconds: float) -> bool:
        """A batch in which inputs are replaced while it is stopped. False where it had ended, or no others fit.

        seconds: of a call.
        """
        world = side.worlds[0]
        calls = max(calls, min(MANY_CALLS, int(MANY_SECONDS / max(seconds, TINY_SECONDS))))
        calls = min(calls, self.turns.exchange.stage.layout.slots)
        self._ready(side, calls)
        self.turns.reveal(side, Batch(0, calls), "call", watch=False)
        world.go()
        world.await_begun(range(world.ranks))
        replaced: set[int] = set()
        for _ in range(STOPS):
            self.turns.timer.sleep(calls * seconds * self.chance.uniform(*BETWEEN_STOPS))
            self.turns.stop(side, world)
            found = self._replace_later(side, calls)
            world.resume()
            replaced |= found
            if not found:
                break
        side.exchange.await_done(world, self.turns.limits.batch)
        self.turns.stop_all()
        if replaced:
            side.exchange.require_right(sorted(replaced), hint=NOT_ITS_OWN)
        else:
            self.turns.exchange.discard_outputs()
        return bool(replaced)

    def _replace_later(self, side: TimedSide, calls: int) -> set[int]:
        """Replaces inputs of a stopped batch; returns the slots, none where the batch has ended or no others fit."""
        found = side.exchange.progress(calls)
        for rank, seen in enumerate(found):
            if seen.known and seen.ahead:
                text, verdict = "an output was written before the call that returns it", Verdict.PROTOCOL
                raise Failed(verdict, side.exchange.failure(text, verdict, rank=rank), side.exchange.side)
        if not all(seen.known for seen in found):
            self.replaced_due = 0  # of this problem's calls nobody can see how far they are
            return set()
        # Each rank's first slot without an output may be the one that it works on now.
        later = range(max(seen.written for seen in found) + 1, calls)
        chosen = {later[0], self.chance.choice(later)} if later else set()
        replaced = {slot for slot in sorted(chosen) if side.exchange.replace(slot, DRAWS)}
        for slot in replaced:
            side.exchange.reveal(slot, 1)
        return replaced
