"""Device time: gated batches, timed from the gate's opening to the last rank's completion.

CPU ranks have no device time, and neither have kernels that wait for the GPU within a call.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence

from sandbox.machine.devices.kind import HELD, Pace
from sandbox.protocol.frames import GatePage, Kind
from sandbox.protocol.messages import FinishBatch
from sandbox.timing.clocks import Clock
from sandbox.timing.interval import Pair
from sandbox.timing.probes import Probe, Probes
from sandbox.timing.single_calls import SINGLE_PAIRS, SingleCalls
from sandbox.timing.turns import Batch, TimedSide, Turns
from sandbox.worlds.failures import Deadline
from sandbox.worlds.world import World

QUEUE_SECONDS, QUEUE_SHARE = 0.05, 10.0
"""Time in which a call must be launched behind the closed gate: the longer of these seconds and this multiple of the time of a
call. A kernel that launches none waits for the device or for room in its queue."""
BATCH = 0.003
"""Target length of a batch in seconds, which limits the relative error of the overhead. Other batches are longer, so where the
device limits calls, gated ones have as many calls as those, and no first pair is left out (HELD)."""
CALLS, QUEUED_SHARE = 128, 0.9
"""Most calls of a batch (200 were no quieter on H200). If a launch queue is full earlier, the next batch has this share of
the launched calls, but at least a quarter of all: something else may have held them up."""
NOOP_BATCHES = 2
"""No-op batches of each reference, to measure the overhead, and as many of a kernel as `Turns.noops`."""
SINGLES_AT_ONCE = 6
"""Single calls whose inputs are drawn together."""


class DeviceTime:
    """Device time, the second clock of one run."""

    def __init__(self, turns: Turns, pace: Pace, offsets: Mapping[str, Sequence[float]]) -> None:
        """offsets: as `Clock.offsets`."""
        self.turns = turns
        self.exchange = turns.exchange
        self.pace = pace
        self.clock = Clock("device", rival=len(turns.kernels) > 1, offsets=offsets)
        self.probes = Probes(turns, apart=0)
        self.cannot_queue = False
        """Whether not even one call can be queued."""
        self.calls = 0
        """Calls of a batch, as found by `try_out`."""
        self._gates: dict[World, GatePage] = {}
        self._queues_beside = True
        """Whether references have queued all their calls beside two kernels."""
        self._ungated_calls = 0
        """Calls of a batch that is not gated."""
        self._most_calls = CALLS
        self._turn = 0

    @property
    def runs(self) -> bool:
        """Whether there is device time, as far as is known."""
        return bool(self._gates)

    def install(self) -> None:
        """Makes a gate for each world, if the device has gates."""
        if not self.pace.gated_pairs:
            return
        for world in self.turns.worlds:
            world.processes.resume()
            self._gates[world] = self.turns.gate_of(world)

    def try_out(self, count: int, most: int) -> None:
        """Finds whether calls can be queued, then how many. None of its pairs counts.

        count: calls of a batch that is not gated. most: most calls of a gated one.
        """
        found: list[Pair] | None = None
        self._ungated_calls = count
        for calls in (1, count):
            while self._gates and (found := self._pairs(calls, 1)) is None:
                pass
        if not found:
            return
        calls = found[0].calls
        quicker = min(min(pair.baseline_us, pair.contender_us) for pair in found) / 1e6
        wanted = int(BATCH / max(quicker, 1e-7)) + 1
        self.calls = max(calls, min(wanted, most, self.exchange.prepared.layout.slots // 2, self._most_calls))

    def round(self, number: int, most: int) -> None:
        """Times some pairs, if there is device time. number: of the round; most: pairs at most."""
        if self._gates:
            self.clock.raw += self._pairs(self.calls, min(self.pace.gated_pairs, most), number, probing=True) or ()

    def finish(self) -> None:
        """Runs the probes that are still due."""
        self.probes.hurry = True
        while self._gates and self.probes.left(self.calls):
            self._pairs(self.calls, min(self.pace.gated_pairs, self.probes.left(self.calls)), probing=True)

    def single_calls(self) -> SingleCalls:
        """Times pairs of gated batches of one call, on fresh inputs; fewer if a call cannot be queued.

        They do not count, and are compared. A call is launched before the gate opens, so its launch is no part of its time.
        """
        found = SingleCalls(self.turns)
        for number in range(SINGLE_PAIRS // SINGLES_AT_ONCE):
            if self._gates:
                found.pairs += self._pairs(1, SINGLES_AT_ONCE, number, probing=True) or ()
        return found

    @property
    def proven(self) -> bool:
        """Whether inputs were replaced in gated batches, or every timed one had a single call."""
        return self.probes.proven or all(pair.calls == 1 for pair in self.clock.raw)

    def give_up(self) -> None:
        """Ends device time for this run."""
        self._gates.clear()
        self.clock = self.clock.anew()

    def _pairs(self, count: int, wanted: int, number: int = 0, probing: bool = False) -> list[Pair] | None:
        """Times pairs of gated batches on fresh inputs; None if this many calls cannot be queued.

        number: of the round. probing: some batches, drawn at random, are probes and belong to no pair.

        The first round of a reference world measures its overhead, in slots after those of the pairs. Its first pair does not
        count if no batch of so many calls ran before (HELD).
        """
        calls = min(count, self._most_calls)
        reference = number % len(self.turns.baseline_side.worlds)
        unknown = probing and calls == self.calls and reference not in self.clock.noop
        skipped = unknown and self._ungated_calls < min(calls, HELD)
        slots = self.exchange.prepared.layout.slots
        wanted = max(1, min(wanted, slots // calls - unknown))
        self.turns.draw(min(calls * (wanted + unknown), slots))
        if probing:
            self.probes.draw_meaningful(calls, wanted)
        found: list[Pair] = []
        chosen: list[int] = []
        timed: list[int] = []
        try:
            for side, world, index in self.turns.noops(reference) * (NOOP_BATCHES * unknown):
                noop = Batch(min(calls * wanted, slots - calls), calls, noop=True)
                self.clock.note_noop(index, self._gated(side, world, noop) / calls * 1e6)
            for place in range(wanted):
                batch = Batch(place * calls, calls)
                if probing and (probe := self.probes.draw(calls)):
                    self._probe(probe, batch, reference)
                    continue
                pair = self._pair(batch, number)
                if timed or not skipped:
                    found.append(pair)
                chosen.append(batch.first + self.turns.random.randrange(calls))
                timed += range(batch.first, batch.first + calls)
        except _NotQueued as full:
            self.turns.compare([], [])
            self.clock.noop.clear()  # the overhead of a call depends on the calls of a batch
            if calls > 1:
                share = QUEUED_SHARE if full.args[0] < calls else 0.5
                self._most_calls = max(1, calls // 4, int(share * full.args[0]))
                self.calls = min(self.calls, self._most_calls)
            else:
                self.give_up()
                self.cannot_queue = True
            return None
        self.probes.compare(timed)
        if probing and calls == self.calls and not self.exchange.prepared.varies:
            self.clock.beside += self.turns.compare(chosen, timed, calls, self._timed_beside)
        else:
            (self.turns.compare if probing else self.turns.compare_seldom)(chosen, timed)
        return found

    def _timed_beside(self, side: TimedSide, world: World, batch: Batch, turn: int) -> float:
        """Runs a batch of a reference beside two kernels, behind the gate as long as its calls can be queued (`RunBatch`)."""
        if self._queues_beside:
            with contextlib.suppress(_NotQueued):
                return self._gated(side, world, batch)
            self._queues_beside = False  # this batch has ended without the gate
        else:
            self.turns.timed(side, world, batch, turn)
        return math.inf

    def _probe(self, probe: Probe, batch: Batch, reference: int) -> None:
        """Runs a probe: stops a batch, or one of its ranks, while it is queued.

        Queued work runs, then inputs are replaced. Raises _NotQueued.
        """
        side, world = probe.side, probe.side.worlds[0]
        self._turn += 1
        for other, before in self.probes.prepare(probe, batch, [reference]):
            self._gated(other, before, batch)
        page = self._gates[world]
        self.turns.get_ready(side, world, batch, self._turn, epoch=page.shut())
        world.go()

        def run_queued() -> None:
            self.turns.reveal(side, batch, "device", watch=False)
            page.open()

        with self.turns.watched(self.turns.stopped_kernels(world)):
            stop = self.probes.hold if probe.kind == "held" else self.probes.replace
            stop(probe, batch, self.turns.call_seconds[side is self.turns.contender_side], run_queued)
            self.exchange.await_all(world, Kind.QUEUED, self.turns.batch_limit(batch.calls))
            world.tell(FinishBatch())
            self.turns.end(side, world, batch)

    def _pair(self, batch: Batch, number: int) -> Pair:
        """Times one batch on either side, in random order."""
        self._turn += 1
        baseline, contender = self.turns.sides
        reference = number % len(baseline.worlds)
        first = self.turns.random.random() < 0.5
        order = [(baseline, baseline.worlds[reference]), (contender, contender.worlds[0])]
        us = {}
        for side, world in order if first else order[::-1]:
            us[id(side)] = self._gated(side, world, batch) / batch.calls * 1e6
        times = us[id(baseline)], us[id(contender)]
        return Pair(reference, *times, first, batch.calls, number, at_s=self.turns.elapsed_s)

    def _gated(self, side: TimedSide, world: World, batch: Batch) -> float:
        """Runs a gated batch; returns the seconds from the gate's opening to the last rank's completion.

        Raises _NotQueued.
        """
        page = self._gates[world]
        self.turns.get_ready(side, world, batch, self._turn, epoch=page.shut())
        world.go()
        self._await_queued(side, world, batch)
        launched = (self.turns.timer.perf_counter_ns() - world.went) / batch.calls
        if not batch.noop:
            self.probes.launch_ns[world] = min(launched, self.probes.launch_ns.get(world, math.inf))
        with self.turns.watched(self.turns.stopped_kernels(world)):
            # Queued work reads its inputs when it runs, so they are completed this late.
            if self.exchange.sealed:
                self.turns.fill_in(side, world, batch, "device")
            started = page.open()
            world.processes.resume()
            world.tell(FinishBatch())
            ended = page.wait(self.turns.batch_limit(batch.calls))
            if ended is not None:
                side.exchange.read_outputs()
                ended += self.turns.late_reading_ns(side)
            done = self.turns.end(side, world, batch)
        return (self._end(side, ended, done) - started) / 1e9

    def _await_queued(self, side: TimedSide, world: World, batch: Batch) -> None:
        """Waits until all calls of a batch are launched. Raises _NotQueued when no further one is launched in time."""
        longest = max(QUEUE_SECONDS, QUEUE_SHARE * max(self.turns.call_seconds))
        launched, before = 0, -1
        while launched > before:
            with contextlib.suppress(Deadline):
                self.exchange.await_all(world, Kind.QUEUED, longest, may_be_late=True)
                return
            before, launched = launched, min(batch.calls, *world.calls_begun_by_rank())
        # The world waits for its own batch and so cannot queue it. Nothing is timed.
        self.turns.reveal(side, batch, "device", watch=False)
        self._gates[world].open()
        self.exchange.await_all(world, Kind.QUEUED, self.turns.batch_limit(batch.calls))
        world.tell(FinishBatch())
        side.exchange.await_done(world, self.turns.batch_limit(batch.calls))
        raise _NotQueued(launched)

    def _end(self, side: TimedSide, marked: int | None, done: int) -> int:
        """The end of a batch: the last mark, or the last DONE less the usual delay between the two, whichever is later.

        Outputs are complete at the last mark. A rank may work on after it, on a stream that the mark does not cover. The delay
        varies by tens of microseconds, for both sides alike. Times are in ns. marked: None if it came too late.
        """
        if marked is None:
            return done
        return marked + self.turns.beyond_usual("DONE", side, done - marked)


class _NotQueued(Exception):
    """A batch could not be queued without waiting for the device. Its argument: the calls whose launch began."""
