"""Probes: untimed batches that detect kernels which compute ahead of their call or read peers' inputs too early.

All inputs of a batch are complete at GO, on all ranks, so that only the kernel is timed. A kernel could exploit that:
do the work of later calls in an earlier one, or read its peers' inputs without waiting for its peers. So some of a
run's batches, drawn at random after they have been prepared, are probes. A kernel cannot tell them from timed batches.
There are three kinds:

- apart: the ranks start one after another. A rank's inputs are completed right before it starts.
- replaced: the batch is stopped, and inputs of calls that no rank has begun are replaced.
- held: one rank is stopped while the others run on, and the inputs of its next call are replaced. A rank that needs
  them waits for that call. A rank that exchanged them in an earlier call does not wait, and its output is wrong.

The ranks, which run the kernel, count the calls that have begun. If a count is too high, nothing is left to replace; it may not
grow faster than calls can follow each other, and on CPU ranks outputs of calls that should have ended are missing then. If it is
too low, inputs that were used are replaced, so outputs are wrong. Both harm the kernel alone.

Under upstream's inputs an estimate or a constant may be right. So some iterations, also of timed batches, are meaningful: their
inputs are of the problem's own distribution, drawn before the first batch of a round, so that no pause tells.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sandbox.protocol.verdict import Verdict
from sandbox.timing.turns import MEANINGFUL, Batch, TimedSide, Turns
from sandbox.worlds.world import World

PAPER = "paper"
"""The preset whose inputs are upstream's."""
WANTED_APART, WANTED_REPLACED, WANTED_HELD = 2, 3, 2
"""Probes of each kind in a run, for each kernel. A kernel can count them and work ahead afterwards, so the last one that is
"replaced" follows the rounds, and further ones come before it, ever more rarely: it could guess when rounds end."""
WANTED_MEANINGFUL, MOST_MEANINGFUL = 2, 2
"""Batches of a run with meaningful iterations, and most of these in a batch."""
SHARE, SHARE_OF_TWO, TIMED_FIRST = 0.15, 0.5, 8
"""Share of the batches that become probes while some are due; in a duel, the share after so many batches. It has twice the probes
and few pairs, which take longer: its verdict would wait for the others. The first pairs suffice for a clear difference."""
MOST_TRIES, MOST_HELD_TRIES, MOST_UNFIT_TRIES = 30, 10, 2
"""Most tries of the kinds "replaced" and "held". A try is repeated if the batch ended before it or a rank was stopped.
It is also repeated if no other inputs fit, up to the third number."""
LEAST_CALLS, DRAWS, MORE_DRAWS = 2, 4, 28
"""Least calls of a batch that is stopped, because a single call has no later one. Most draws until inputs fit in the place of
others, and in the try after one in which none did. A draw takes 10 ms where shapes vary, a try 0.15 s more."""
STOPS = 4
"""Stops of one batch. At every other stop a kernel that works one call ahead has done so."""
STOP_BY = 0.002, 0.5
"""Range of the share of its length after which a batch is stopped at the latest; each factor of two is drawn equally often."""
LEAST_LAUNCH, MOST_EARLY = 0.5, 2
"""Behind the gate no call can begin earlier than by this share of the quickest launches of a batch. In so many probes of a kernel
calls may count as begun earlier, because launches may have become quicker."""
LAUNCHED_SECONDS, LAUNCHED_TIMES = 0.005, 2.0
"""Work that a stopped batch launched on a GPU gets this many seconds, plus this multiple of the time of its calls."""
SLEEP_SECONDS, SPIN_SECONDS = 50e-6, 1e-6
"""Seconds between two reads of a batch's progress, on CPU ranks and on GPU ranks."""
APART_SECONDS = 0.001, 0.004
"""Range of the seconds between the starts of two ranks."""
MOST_MISFITS = 3
"""A rank is no longer held after this many iterations in which its inputs could not be replaced alone."""
HELD_SECONDS, HELD_CALLS = 0.001, 2
"""The other ranks run on for these seconds plus the time of these calls, or until one has finished the call."""
COMPARED = 2
"""Number of first calls that are compared in a batch whose ranks started apart. One random call is compared, too."""
NOT_ITS_OWN = (
    "; the inputs of this call were replaced while an earlier call ran, and a call may work on its own inputs alone"
)
OF_A_PEER = (
    "; rank {rank} was stopped before this call and its input replaced, and a call may use no copy of an earlier call"
)
NOT_YET = "; ranks had started one after another, and a rank's inputs are complete only when it has started"


@dataclass
class Due:
    """The probes of one kernel that are still due."""

    apart: int = 0
    replaced: int = 0
    held: int = 0
    tries: int = 0
    """Tries of the kind "replaced"."""
    held_tries: int = 0
    """Tries of the kind "held"."""
    unfit_tries: int = 0
    """Tries of the kind "replaced" in which no other inputs fitted."""
    early: int = 0
    """Stops before which more calls counted as begun than can have."""
    compared: dict[str, list[int]] = field(default_factory=dict)
    """Slots of this round whose outputs must still be compared, by the hint for wrong outputs."""


class Probe(NamedTuple):
    """A probe and the kernel that it tests."""

    side: TimedSide
    due: Due
    kind: str


class Probes:
    """The probes of one run, for one of its clocks."""

    def __init__(self, turns: Turns, apart: int = WANTED_APART) -> None:
        self.turns = turns
        self.chance = turns.random
        peers = turns.setting.world > 1
        self._wanted = (apart * peers, WANTED_REPLACED, WANTED_HELD * peers) if turns.exchange.sealed else ()
        self._sleep_seconds = SPIN_SECONDS if turns.kind.has_gate else SLEEP_SECONDS
        self.launch_ns: dict[World, float] = {}
        """By world: the least time from GO until a gated batch was launched, for each of its calls."""
        self._drawn = 0
        """Batches that were probes or timed."""
        self.renew()

    def renew(self) -> None:
        """Makes all probes due again: a kernel can know how many batches a measurement has had, and wait for its end."""
        self.due = [Due(*self._wanted) for _ in self.turns.kernels]
        self.meaningful = WANTED_MEANINGFUL * (self.turns.setting.preset == PAPER)
        """Batches that are still to get meaningful iterations."""
        self.hurry = False
        """Whether every batch becomes a probe while some are due."""

    def left(self, calls: int) -> int:
        """Due probes of all kernels that can run in batches of this many calls, if none of them fails, and meaningful batches."""
        return self.meaningful + sum(int(getattr(due, kind)) for due in self.due for kind in self._kinds(due, calls))

    @property
    def proven(self) -> bool:
        """Whether inputs of every kernel were replaced.

        All wanted replacements for all ranks are needed, and one for a single rank if that is possible.
        """
        return not any(due.replaced or (due.held == WANTED_HELD and self._can_be_held) for due in self.due)

    @property
    def replaced_some(self) -> bool:
        """Whether inputs of every kernel were replaced at least once."""
        return all(due.replaced < WANTED_REPLACED for due in self.due)

    @property
    def _can_be_held(self) -> list[int]:
        """The ranks whose inputs can be replaced alone, as far as is known."""
        misfits = self.turns.exchange.prepared.misfits
        return [rank for rank in range(self.turns.setting.world) if misfits[rank] < MOST_MISFITS]

    def draw(self, calls: int) -> Probe | None:
        """Draws a probe, or None if this batch of `calls` calls is timed."""
        self._drawn += 1
        found = self._due(calls)
        share = SHARE_OF_TWO if len(self.due) > 1 and self._drawn > TIMED_FIRST else SHARE
        if not found and not self.hurry and self.chance.random() * self._drawn < 1:
            share, due = 1.0, self.chance.choice(self.due)
            due.replaced += 1  # one more, which a kernel that has counted the others does not expect
            found = self._due(calls)
            due.replaced -= not found
        return self.chance.choice(found) if found and (self.hurry or self.chance.random() < share) else None

    def _due(self, calls: int) -> list[Probe]:
        """The probes from which one is drawn for a batch of this many calls."""
        both = zip(self.turns.kernels, self.due, strict=True)
        return [Probe(side, due, kind) for side, due in both for kind in self._kinds(due, calls)]

    def _kinds(self, due: Due, calls: int) -> list[str]:
        """The kinds that are due, have tries left, and can run in a batch of this many calls."""
        stops, kept = calls >= LEAST_CALLS, 0 if self.hurry else 1
        found = {
            "apart": due.apart > 0,
            "replaced": stops and due.replaced > kept and due.tries < MOST_TRIES and due.unfit_tries < MOST_UNFIT_TRIES,
            "held": stops and due.held > 0 and due.held_tries < MOST_HELD_TRIES and bool(self._can_be_held),
        }
        return [kind for kind, is_due in found.items() if is_due]

    def run(self, probe: Probe, batch: Batch, seconds: float) -> None:
        """Runs a probe. seconds: time of a call."""
        side, due, kind = probe
        world = side.worlds[0]
        for other, before in self.prepare(probe, batch, self.turns.references_now):
            self.turns.timed(other, before, batch, self.turns.turn_of(batch))
        self.turns.get_ready(side, world, batch, self.turns.turn_of(batch))
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
                (self.hold if kind == "held" else self.replace)(probe, batch, seconds)
            self.turns.end(side, world, batch)

    def prepare(self, probe: Probe, batch: Batch, references: Sequence[int]) -> list[tuple[TimedSide, World]]:
        """Notes a probe's meaningful inputs; draws which worlds run before it: as in a pair, for a kernel may know its pauses.

        references: the indices of a pair's reference worlds.
        """
        if found := [slot for slot in self.turns.meaningful if 0 <= slot - batch.first < batch.calls]:
            probe.due.compared.setdefault(MEANINGFUL, []).extend(found)
        other = next(each for each in self.turns.sides if each is not probe.side)
        some = self.chance.sample(references, self.chance.randint(0, len(references)))
        return [(other, other.worlds[number]) for number in some]

    def draw_meaningful(self, calls: int, batches: int) -> None:
        """Draws some iterations of a batch of this round again, from the problem's own distribution, if that is due.

        Call it before the first batch of the round.
        """
        for due in self.due:
            due.compared.clear()  # of a round that could not be queued
        if self.meaningful and (self.hurry or self.chance.random() < SHARE * batches):
            first = self.chance.randrange(batches) * calls
            chosen = self.chance.sample(range(first, first + calls), min(MOST_MEANINGFUL, (calls + 1) // 2))
            self.turns.meaningful = [s for s in chosen if self.turns.exchange.replace(s, DRAWS, [True])]
            self.meaningful *= bool(self.turns.meaningful)

    def compare(self, timed: Sequence[int]) -> None:
        """Compares the outputs of this round's probes: meaningful ones with the oracle, others first with the baseline's.

        Stale inputs are other draws, so their outputs are far from the baseline's. timed: slots that `Turns.compare` compares.

        Raises:
            Failed: outputs are wrong. It names the side.
        """
        self.turns.stop_all()
        self.meaningful -= any(slot in timed for slot in self.turns.meaningful)
        for side, due in zip(self.turns.kernels, self.due, strict=True):
            for hint, slots in due.compared.items():
                exact = slots if hint == MEANINGFUL else []
                side.exchange.require_right(exact, beside=[] if exact else sorted(set(slots)), hint=hint)
            due.compared.clear()

    # --- ranks that start apart ----------------------------------------------------------------------------------

    def _start_apart(self, side: TimedSide, world: World, batch: Batch) -> None:
        """Starts the ranks one after another, in random order."""
        self.turns.stop(side, world)
        order = self.chance.sample(range(world.ranks), world.ranks)

        def before(rank: int) -> None:
            if rank != order[0]:
                self.turns.timer.sleep(self.chance.uniform(*APART_SECONDS))
            side.exchange.reveal(batch.first, batch.calls, rank=rank)

        world.go_apart(order, before)

    # --- inputs that are replaced --------------------------------------------------------------------------------

    def replace(self, probe: Probe, batch: Batch, seconds: float, stopped: Callable[[], None] = lambda: None) -> None:
        """Stops a running batch a few times, each time replaces inputs of later calls, and continues it.

        At each stop the next call is one of them, which a kernel that works ahead has done. stopped(): called once, after the
        first stop.
        """
        side, due, world = probe.side, probe.due, probe.side.worlds[0]
        due.tries += 1
        replaced: list[int] = []
        begun, shown = 0, False
        for number in range(STOPS):
            due.early += not self._wait(world, batch.calls, begun, seconds)
            if due.early > MOST_EARLY:
                raise side.exchange.failed("calls count as begun before they can have", Verdict.PROTOCOL)
            self.turns.stop(side, world)
            begun, before = min(world.calls_begun(), batch.calls), begun
            if number == 0:
                stopped()
            until = self.turns.timer.monotonic() + LAUNCHED_SECONDS
            found = self._draw_from(side, batch, begun, MORE_DRAWS if due.unfit_tries else DRAWS)
            if self.turns.kind.has_gate:
                # Work launched since the last stop goes on. It must have read its inputs before they are replaced.
                left = max(0.0, until - self.turns.timer.monotonic())
                self.turns.timer.sleep(left + LAUNCHED_TIMES * (begun - before) * seconds)
            self._require_honest_counts(side, world, batch, begun)
            for slot in found:
                side.exchange.reveal(slot, 1)
            world.processes.resume()
            due.compared.setdefault(NOT_ITS_OWN, []).extend(found)
            replaced += found
            shown |= bool(found) and begun > 0
            if not found:
                break
        due.unfit_tries += not replaced and begun < batch.calls
        due.replaced -= shown

    def _require_honest_counts(self, side: TimedSide, world: World, batch: Batch, begun: int) -> None:
        """Raises Failed if an output was written before its call. One that is written after it is late.

        begun: calls that have begun on some rank. On GPUs outputs may be written later, so none is late there.
        """
        counts = [0] * world.ranks if self.turns.kind.has_gate else world.calls_begun_by_rank()
        ended = [max(0, min(count, batch.calls) - 1) for count in counts]
        looked = side.exchange.look_ahead(batch.first, begun, batch.calls, ended)
        if any(looked):
            text = "an output was written before the call that returns it"
            raise side.exchange.failed(text, Verdict.PROTOCOL, rank=looked.index(True))

    def _wait(self, world: World, calls: int, begun: int, seconds: float) -> bool:
        """Waits until a drawn number of calls have begun, but no longer than a drawn share of the batch.

        Returns whether so many can have begun since GO.
        """
        wanted = self.chance.randint(begun + 1, max(calls - 1, begun + 1))
        share = math.exp(self.chance.uniform(*map(math.log, STOP_BY)))
        until = self.turns.timer.monotonic() + calls * seconds * share
        while (found := world.calls_begun()) < wanted and self.turns.timer.monotonic() < until:
            self.turns.timer.sleep(self._sleep_seconds)
        least = (found - 1) * LEAST_LAUNCH * self.launch_ns.get(world, 0.0)
        return least <= self.turns.timer.perf_counter_ns() - world.went

    def _draw_from(self, side: TimedSide, batch: Batch, begun: int, draws: int) -> list[int]:
        """Draws other inputs for calls that have not begun; returns their slots in order, none if no inputs fit."""
        later = range(batch.first + begun, batch.first + batch.calls)
        chosen = sorted({later[0], self.chance.choice(later)}) if later else []
        return [slot for slot in chosen if side.exchange.replace(slot, draws)]

    # --- one rank that is stopped ------------------------------------------------------------------------------

    def hold(self, probe: Probe, batch: Batch, seconds: float, stopped: Callable[[], None] = lambda: None) -> None:
        """Stops one rank of a running batch, replaces the inputs of its next call, and continues it.

        stopped(): called after the stop.
        """
        side, due, world = probe.side, probe.due, probe.side.worlds[0]
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
        """Waits until a rank is in a drawn call, at least the second one of three or more.

        Waits no longer than two batches take.
        """
        wanted = min(self.chance.randint(2, max(calls - 1, 2)) for _ in range(2)) if calls > 2 else 1
        until = self.turns.timer.monotonic() + 2 * calls * seconds
        while world.calls_begun_by_rank()[rank] < wanted and self.turns.timer.monotonic() < until:
            self.turns.timer.sleep(self._sleep_seconds)
        if calls == 2:
            self.turns.timer.sleep(self.chance.uniform(0.0, seconds / 2))

    def _let_others_go_on(self, world: World, rank: int, begun: int, seconds: float) -> None:
        """Waits until another rank has finished the call after `begun`.

        It stops waiting when ranks that do not need this one could have done so.
        """

        def others() -> list[int]:
            counts = world.calls_begun_by_rank()
            return counts[:rank] + counts[rank + 1 :]

        behind = max(0, begun - min(others()))
        until = self.turns.timer.monotonic() + HELD_SECONDS + (HELD_CALLS + behind) * seconds
        while max(others()) < begun + 2 and self.turns.timer.monotonic() < until:
            self.turns.timer.sleep(self._sleep_seconds)
        if self.turns.kind.has_gate:  # calls are only launched by now; they take longer
            self.turns.timer.sleep(LAUNCHED_SECONDS + LAUNCHED_TIMES * (begun + 1) * seconds)
