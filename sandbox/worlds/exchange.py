"""The exchange of iterations between the oracle world and another world: draws inputs, compares outputs."""

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from sandbox.protocol import messages
from sandbox.protocol.events import Failure, OutputError, RankChecked
from sandbox.protocol.frames import LOST, GatePage, Kind
from sandbox.protocol.messages import OutputFinding, R
from sandbox.protocol.verdict import ADVICE, Verdict
from sandbox.worlds.deadlines import TimeLimits, TimeSource
from sandbox.worlds.failures import HarnessFailed, OutputsLost
from sandbox.worlds.rank_wire import Received
from sandbox.worlds.world import World

AwaitAll = Callable[..., list[Received]]
"""(world, kind, limit, may_be_late=False): waits for an answer of one kind from every rank of a world, and serves all other input
meanwhile. limit: seconds.

Raises WorldFailed or Deadline if the contender is at fault, and other exceptions for other ends of the run.
"""

_FACTORS = (0.0, *map(float, range(2, 65)), *(1.0 / ranks for ranks in range(2, 65)))
"""What a forgotten or repeated division, or a sum over too many or too few ranks, multiplies an output with."""
CONTENDER, RIVAL, REFERENCE = range(3)
"""The sides of a run, by number: the kernel that is judged, a second kernel in the baseline's place, and the worlds that run
the baseline."""
MOVING_US = 1000.0
"""Foreign work that copies over NVLink count as, in microseconds: about the time between two readings of the counters."""
READ_SECONDS = 1.0
"""Limit to read outputs at the end of a batch. It takes about 20 us."""
ARENAS = 2
"""Descriptors that a rank gets with its arenas: inputs and outputs."""


def ask(
    await_all: AwaitAll,
    world: World,
    order: messages.Order[R],
    limit: float,
    meanwhile: Callable[[], None] | None = None,
) -> list[R]:
    """Sends an order to the oracle world and returns its replies by rank. limit: seconds. Raises as `AwaitAll`.

    meanwhile(): called before it waits.
    """
    world.tell(order)
    if meanwhile is not None:
        meanwhile()
    return [answer.reply for answer in await_all(world, order.kind, limit)]


def fresh_seeds(count: int) -> list[int]:
    """Returns secret random seeds of 63 bits each."""
    return [int.from_bytes(os.urandom(8), "little") >> 1 for _ in range(count)]


@dataclass(eq=False)
class PreparedSetting:
    """A setting that is open in the oracle world, and what this world has measured for it."""

    world: World
    limits: TimeLimits
    layout: messages.SlotLayout
    calls: int
    """Baseline calls that fill a batch."""
    call_seconds: float
    """Seconds of one baseline call, estimated from a few calls."""
    varies: bool = False
    """Whether the shapes inside a call depend on the values of its inputs (sandbox/rank/baseline_measurement.py)."""
    most_references: int | None = None
    """Reference worlds that fit into the devices' memory; None: no limit."""
    used: bool = False
    """Whether arenas have been made for it; the oracle world makes its own with the first."""
    seeds: list[int] = field(default_factory=list)
    """By slot: the seed from which its iteration was drawn first."""
    misfits: Counter[int] = field(default_factory=Counter)
    """By rank: the number of iterations in which only its inputs were to be replaced, but no draw fitted."""
    distinct_calls: int = 0
    """Untimed calls of references, each on other inputs, that prepared their libraries; a kernel's world makes as many."""

    def references_of(self, count: int) -> int:
        """`count` reference worlds, or as many as fit into memory."""
        return count if self.most_references is None else min(count, self.most_references)


def _factor_words(bad: OutputError) -> str:
    """ "; got is 2 times expected everywhere", if that explains the first wrong element and the whole error; else ""."""
    try:
        factor = float(bad.got) / float(bad.expected)
    except (ValueError, ZeroDivisionError):
        return ""
    near = min(_FACTORS, key=lambda each: abs(each - factor))
    explains = abs(near - factor) <= 0.01 * near and abs(abs(near - 1.0) - bad.rms) <= 0.01 * bad.rms
    return f"; got is {near:.3g} times expected everywhere" if explains else ""


def hand_over_arenas(
    await_all: AwaitAll, prepared: PreparedSetting, worlds: Sequence[World], side: int, shared: bool = False
) -> None:
    """Gives the worlds of a side fresh arenas. Each oracle rank makes those of the ranks with its number.

    shared: these worlds read the oracle ranks' own inputs. Only for worlds that run no kernel.
    """
    layout = prepared.layout
    prepared.world.tell(messages.MakeArenas(layout, own=not prepared.used, side=side, shared=shared))
    prepared.used = True
    made = await_all(prepared.world, Kind.MAKE_ARENAS, prepared.limits.own)
    try:
        if any(len(answer.fds) != ARENAS for answer in made):
            raise HarnessFailed("descriptors of arenas got lost: the referee has too many open files")
        for world in worlds:
            world.tell_each([messages.MapArenas(layout)] * len(made), [tuple(answer.fds) for answer in made])
    finally:
        for answer in made:
            for fd in answer.fds:
                os.close(fd)
    for world in worlds:
        await_all(world, Kind.MAPPED, prepared.limits.load)


class Failed(Exception):
    """The run ended early: the verdict and the reason."""

    def __init__(self, verdict: Verdict, failure: Failure, side: int = CONTENDER) -> None:
        """side: that of the kernel at fault, CONTENDER or RIVAL."""
        super().__init__(failure.message)
        self.side = side
        self.verdict = verdict
        self.failure = failure


class Exchange:
    """The arenas of one run, and what has been found in them so far."""

    def __init__(
        self,
        prepared: PreparedSetting,
        contender: World,
        await_all: AwaitAll,
        emit: Callable[[Any], None],
        timer: TimeSource,
        side: int = CONTENDER,
    ) -> None:
        """contender: the world of this side; of several references the first. side: CONTENDER, RIVAL or REFERENCE."""
        self.prepared, self.contender, self.side = prepared, contender, side
        self.await_all, self.emit, self.timer = await_all, emit, timer
        self.oracle, self.sealed = prepared.world, prepared.layout.sealed
        self.sides = [side]
        """The sides whose inputs are drawn: both while two contenders are timed against each other."""
        self.phase = "load"
        self.tables: list[list[messages.SlotTable]] = []
        """By rank: where the tensors of the drawn iterations lie."""
        self.shapes_vary = False
        """Whether shapes differ from rank to rank, and from iteration to iteration."""
        self.findings: dict[int, dict[str, OutputError]] = {}
        self.reuses = False
        """Whether a rank reports that the kernel returned the memory of an earlier result again."""
        self.lost = False
        """Whether a rank has reported lost outputs. A kernel could report them again and again, so only the first counts."""
        self.paper: bool | None = None
        self.used_since_done: Callable[[], float] | None = None
        """CPU seconds of the kernel's processes since the order to stop after the last copied batch; None once noted."""
        self.read_ns: int | None = None
        """Nanoseconds from the end of the last batch until its outputs were read; None once noted, and if they were not."""
        self._ends: GatePage | None = None
        """The oracle world's gate, through which `read_outputs` announces the end of a batch."""

    def hand_over_arenas(self) -> None:
        """Gives the contender fresh arenas: each oracle rank makes those of the contender rank with its number."""
        hand_over_arenas(self.await_all, self.prepared, [self.contender], self.side)

    def ask(self, order: messages.Order[R], meanwhile: Callable[[], None] | None = None) -> list[R]:
        """Sends an order to the oracle world and returns its replies by rank. meanwhile(): called before it waits."""
        self._ends = None  # an order ends the wait for the end of a batch
        return ask(self.await_all, self.oracle, order, self.prepared.limits.own, meanwhile)

    def draw(self, count: int, timed: bool, meanwhile: Callable[[], None] | None = None) -> None:
        """Draws fresh secret inputs for the first `count` slots. `tables` then has the places of the tensors.

        timed: as for `messages.Draw`; fail if a kernel has written to its outputs since the last comparison. meanwhile(): called
        while the oracle world draws.
        """
        self.prepared.seeds = fresh_seeds(count)
        order = messages.Draw(self.prepared.seeds, timed=timed, sides=self.sides)
        drawn = self.ask(order, meanwhile)
        for rank, reply in enumerate(drawn):
            for side in reply.touched:
                raise self.late(rank, side)
        self.tables = [reply.tables for reply in drawn]
        of_slots = [[slot.tensors for slot in of_ranks] for of_ranks in zip(*self.tables, strict=True)]
        differ = any(shapes != each[0] for each in of_slots for shapes in each)
        self.shapes_vary |= differ and any(each != of_slots[0] for each in of_slots)

    def arm(self, *worlds: World, checking: bool = False) -> None:
        """Makes every rank of these worlds assemble the arguments of all drawn iterations."""
        for world in worlds:
            world.before_go = ()
            world.tell_each([messages.Arm(tables, checking) for tables in self.tables])
        for world in worlds:
            self.await_all(world, Kind.ARMED, self.prepared.limits.load)

    def arm_and_choose(self, world: World, batch: messages.ChooseBatch) -> None:
        """Makes every rank assemble the arguments of a batch's iterations, and prepare it for the next GO.

        All worlds make the same untimed calls. If shapes vary, ranks get them with GO and assemble arguments then, so that no
        kernel exchanges shapes before. Without sealed memory they need them earlier, to copy their inputs.
        """
        tables = [tables[batch.first : batch.first + batch.count] for tables in self.tables]
        late = self.shapes_vary and self.sealed
        early: list[list[messages.SlotTable]] = [[] for _ in tables] if late else tables
        world.tell_each([messages.Arm(slots, batch=batch) for slots in early])
        self.await_all(world, Kind.CHOSEN, self.prepared.limits.batch + self.prepared.limits.load)
        world.before_go = [messages.Arm(slots, timed=True) for slots in tables] if late else []

    def reveal(
        self, first: int, count: int, watch: bool = False, rank: int | None = None, reads: bool = False
    ) -> float:
        """Completes this side's inputs in some slots, for all ranks or one.

        watch: also look for foreign work on the devices; returns its longest duration in microseconds.
        reads: the next `read_outputs` reads the outputs of these slots.
        """
        gate = self.oracle.gate if reads else None
        epoch = gate.shut() if gate else 0
        foreign_us = self._revealed(messages.Reveal(self.side, first, count, watch, rank, epoch))
        self._ends = gate
        return foreign_us

    def read_outputs(self) -> None:
        """Reads a part of each output of a batch at its end, if `reveal` has announced it. A later change is a late output."""
        page, self._ends = self._ends, None
        if page is not None:
            ended = page.open()
            page.wait(READ_SECONDS)
            self.read_ns = self.timer.perf_counter_ns() - ended

    def foreign_us(self) -> float:
        """The longest foreign work on a device now, in microseconds."""
        return self._revealed(messages.Reveal(None, watch=True))

    def _revealed(self, order: messages.Reveal) -> float:
        """Sends the order; returns the longest foreign work in microseconds. Copy engines take no time of the watching kernel."""
        if not order.watch:
            return max(self.ask(order))
        self.await_begun()  # the oracle world's own ranks exchange nothing then
        moving: list[bool] = []
        spec = self.oracle.spec
        found = max(self.ask(order, lambda: moving.append(spec.kind.moves_bytes(spec.gpus))))
        return MOVING_US if any(moving) else found

    def await_done(self, world: World, limit: float, stops: bool = False, copied: tuple[int, int] | None = None) -> int:
        """Waits until a batch ends. Returns its end in perf_counter_ns.

        stops: also stop the world, if its memory is sealed. The batch then ends when all processes known before it have
        got the order to stop. If a process that was started in the batch still runs, it ends when that one has got the
        order, too. Without sealed memory the world goes on running, because its outputs arrive after the end.
        copied: first slot and number of those whose outputs are copied from then on, as `take` does.

        Raises OutputsLost, once, if outputs of the batch are lost and it was timed.
        """
        done = self.await_all(world, Kind.DONE, limit)
        ended = self._after_done(world, stops, copied)
        if world is self.contender:
            reports = [answer.value for answer in done]
            self.reuses |= any(reports)
            if LOST in reports and self.phase == "time" and not self.lost:
                self.lost = True
                raise OutputsLost
        return ended

    def _after_done(self, world: World, stops: bool, copied: tuple[int, int] | None) -> int:
        if not self.sealed:
            ended = self.timer.perf_counter_ns()
            self.await_all(world, Kind.DELIVERED, self.prepared.limits.load)
            if copied:
                self.take(*copied)
            return ended
        if stops:
            world.processes.halt()
        ended = self.timer.perf_counter_ns()
        self.read_outputs()
        if copied:
            # At once, because a system call that writes to outputs goes on until it returns.
            self.used_since_done = world.processes.meter()
            self.take(*copied)
        if stops and world.processes.pause():
            ended = self.timer.perf_counter_ns()
        return ended

    def take(self, first: int, count: int) -> None:
        """Begins to copy this side's outputs in some slots. `compare` reads the copies, so later writes have no effect.

        Call `await_begun` before the side's world continues.
        """
        self._begin(messages.TakeOutputs(first, count, self.side))

    def _begin(self, order: messages.Order[Any]) -> None:
        """Sends an order to the oracle world whose reply says nothing. The next wait for this world takes it."""
        self.oracle.tell(order)
        self.oracle.owes(order.kind)

    def await_begun(self) -> None:
        """Waits until the oracle world has done all that it has begun: outputs are copied and arenas poisoned."""
        if (kind := self.oracle.last_owed()) is not None:
            self.await_all(self.oracle, kind, self.prepared.limits.own)

    def look_ahead(self, batch: int, begun: int, calls: int, ended: Sequence[int]) -> list[bool]:
        """Returns by rank whether a stopped batch has written an output too early. Later changes of ended ones are late.

        batch: its first slot. begun, calls: how many have begun, of how many. ended: by rank, how many have ended.
        """
        return self.ask(messages.LookAhead(self.side, batch, batch + begun, calls - begun, list(ended)))

    def replace(self, slot: int, tries: int, distributions: Sequence[bool] = (True, False)) -> bool:
        """Replaces the inputs of an iteration by new ones of the same trial. Returns False if none fits.

        tries: how many to draw from each distribution. distributions: True means the problem's own. It comes first, because
        inputs as upstream draws them may be the same in every iteration. The contender gets the new inputs with the next
        `reveal` of the slot.
        """
        trial = self.prepared.seeds[slot] % messages.TRIALS
        seeds = ((seed, meaningful) for meaningful in distributions for seed in fresh_seeds(tries))
        return any(
            self._fits(messages.DrawAgain(slot, seed - seed % messages.TRIALS + trial, meaningful))
            for seed, meaningful in seeds
        )

    def replace_alone(self, slot: int, rank: int, tries: int) -> bool:
        """Replaces the inputs of one rank only, as `replace` does. The inputs of all other ranks stay as they are."""
        found = any(self._fits(messages.DrawAgain(slot, seed, alone=rank)) for seed in fresh_seeds(tries))
        self.prepared.misfits[rank] += not found
        return found

    def _fits(self, again: messages.DrawAgain) -> bool:
        """Draws an iteration, and begins to write it if it fits on every rank. Returns whether it does."""
        by_rank: list[bool] = self.ask(again)
        if fits := all(by_rank):
            self._begin(replace(again, replace=True))
        return fits

    def discard_outputs(self) -> None:
        """Begins to poison the output arenas, without comparing anything. The next `draw` waits for it."""
        for side in self.sides:
            self._begin(messages.CompareOutputs([], side))

    def require_untouched(self) -> None:
        """Checks that the output arenas are still poisoned. Raises Failed if a kernel wrote to one."""
        for rank, touched in enumerate(self.ask(messages.CheckPoison(self.sides))):
            for side in touched:
                raise self.late(rank, side)

    def late(self, rank: int, side: int) -> Failed:
        """The failure of a late write. Raises HarnessFailed if the baseline wrote, and no kernel."""
        if side == REFERENCE:
            raise HarnessFailed(f"rank {rank} of the baseline wrote to an output after its call had ended")
        message = f"rank {rank} wrote to an output after its call had ended"
        return Failed(Verdict.LATE_OUTPUT, self.failure(message, Verdict.LATE_OUTPUT, rank=rank), side)

    def failure(self, message: str, verdict: Verdict, advice: str = "", **details: Any) -> Failure:
        """A failure in the current phase. advice: instead of the verdict's."""
        return Failure(phase=self.phase, message=message, advice=advice or ADVICE[verdict], **details)

    def failed(self, message: str, verdict: Verdict, **details: Any) -> Failed:
        """The end of the run by a fault of this side's kernel."""
        return Failed(verdict, self.failure(message, verdict, **details), self.side)

    # --- comparing -----------------------------------------------------------------------------------------

    def compare(
        self, slots: list[int], against: int | None = None, note: bool = True, beside: Sequence[int] = ()
    ) -> tuple[Verdict, Failure | None]:
        """Makes the oracle world compare these slots. Returns the verdict and failure of the first rank that fails.

        against: the side that has run the baseline on these iterations; None: the oracle world runs it now.
        beside: more slots, which are compared only if an output is not near the baseline's.
        note: keep and report the figures.
        """
        compared = self.ask(messages.CompareOutputs(slots, self.side, against, list(beside)))
        verdict, failure = Verdict.PASS, None
        for rank, findings in enumerate(compared):
            ok = True
            for finding in findings:
                if note:
                    self.note(rank, finding.outputs, finding.paper)
                if finding.verdict is not Verdict.PASS:
                    ok = False
                    if failure is None:
                        verdict, failure = finding.verdict, self.mismatch(rank, finding)
            if note and (self.phase == "check" or not ok):
                worst = list(self.findings.get(rank, {}).values())
                self.emit(RankChecked(rank=rank, ok=ok, outputs=worst))
        return verdict, failure

    def require_right(
        self, slots: Sequence[int], against: int | None = None, beside: Sequence[int] = (), hint: str = ""
    ) -> None:
        """Compares slots as `compare` does. hint: text to add to the failure's message.

        Raises:
            Failed: an output is wrong.
        """
        verdict, failure = self.compare(list(slots), against, beside=beside)
        if failure is not None:
            raise Failed(verdict, replace(failure, message=failure.message + hint), self.side)

    def note(self, rank: int, outputs: list[OutputError], paper: bool) -> None:
        """Keeps the worst figures per rank and output."""
        kept = self.findings.setdefault(rank, {})
        for output in outputs:
            before = kept.get(output.output)
            if before is None or (before.ok and not output.ok) or (before.ok == output.ok and output.rms >= before.rms):
                kept[output.output] = output
        self.paper = paper if self.paper is None else self.paper and paper

    def mismatch(self, rank: int, finding: OutputFinding) -> Failure:
        """The failure that describes a failed comparison."""
        verdict = finding.verdict
        bad = next((output for output in finding.outputs if not output.ok), None)
        if bad is None:
            return self.failure(finding.message, verdict, rank=rank, output=finding.output)
        if verdict is Verdict.NONFINITE:  # the error counts only finite elements, and there may be none
            kind = "wrong, some of them not finite"
        elif bad.exact:
            kind = "wrong (must match exactly)"
        elif not math.isfinite(bad.rms):
            kind = "wrong (the relative RMS error is infinite: the exact output is all zeros, or the error overflows)"
        else:
            kind = f"wrong (relative RMS error {bad.rms:.2e}, limit {bad.rms_limit:.2e}){_factor_words(bad)}"
        return self.failure(
            f"output {bad.output}: {bad.wrong} of {bad.total} elements {kind}",
            verdict,
            rank=rank,
            output=bad.output,
            index=bad.first_wrong,
            expected=bad.expected,
            got=bad.got,
            wrong_share=bad.wrong / bad.total if bad.total else 0.0,
        )
