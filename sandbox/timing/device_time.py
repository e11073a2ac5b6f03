"""Device time: batches queued behind the starting gate, from its opening to the last rank's completion.

CPU ranks have none, and neither have kernels that wait for the GPU within a call.
"""

from statistics import median

from sandbox.machine.devices.pace import Pace
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import FinishBatch
from sandbox.timing.clocks import CONTENDER, Clock
from sandbox.timing.interval import Pair
from sandbox.timing.probes import Drawn, Probes
from sandbox.timing.turns import Batch, TimedSide, Turns
from sandbox.worlds.failures import Deadline
from sandbox.worlds.world import Gate, World

QUEUE_SECONDS, QUEUE_SHARE = 0.25, 10.0
"""A batch that is not queued behind the closed gate by then, or in so many times what its calls take with the gate open, waits
for the device: it has no device time."""
BATCH = 0.005
"""Seconds that a batch should last: a world's switch and the ranks' meeting are taken off, but not to the microsecond."""
CALLS = (128, 32, 4, 1)
"""Calls of a batch at the most: fewer are tried when a launch queue is too short for more."""
NOOP_BATCHES = 3
"""Batches of kept results of each reference, with one of the contender beside each: what the gate and the copies take."""
SELDOM = 3
"""Once every reference has had two rounds behind the gate there is one in so many: device time has far less noise than calls."""
RUNS_SECONDS = 1e-3
"""What is queued in a stopped batch runs for so long, and for twice what its calls take."""
TRAILING_SHARE, TRAILING_SECONDS = 0.05, 300e-6
"""How much later than its gate mark a rank may be done, beside what worlds without a kernel need to say so."""


class DeviceTime:
    """The second clock of one run."""

    def __init__(self, turns: Turns, pace: Pace) -> None:
        self.turns = turns
        self.exchange = turns.exchange
        self.limits = turns.limits
        self.pace = pace
        self.clock = Clock("device", rival=len(self.turns.kernels) > 1)
        self.probes = Probes(turns, apart=0)
        self.cannot_queue = False
        """Not even one call can be launched without waiting for the GPU."""
        self.calls = 0
        """Of a batch, as found out."""
        self.call_seconds = 0.0
        """How long a call takes behind the gate on the quicker side, as far as is known; 0 where there is no device time."""
        self._gates: dict[World, Gate] = {}
        self._most_calls = list(CALLS)
        self._done_delays: list[float] = []
        """Seconds that worlds without a kernel needed to say that they are done, after their marks, by batch."""
        self._turn = 0

    @property
    def runs(self) -> bool:
        """Whether there is device time, as far as is known."""
        return bool(self._gates)

    def install(self) -> None:
        """GPU worlds get a gate each."""
        if not self.pace.gated_pairs:
            return
        for world in self.turns.worlds:
            world.resume()
            if world.gate is None:
                world.make_gate()
                self.exchange.await_all(world, Kind.GATED, self.limits.own)
            assert world.gate is not None
            self._gates[world] = world.gate

    def try_out(self, count: int) -> None:
        """Finds out whether the calls can be queued at all, then how many, then what the gate costs; no pair of it counts.

        count: calls of a batch with the gate open.
        """
        found: list[Pair] | None = None
        for calls in (1, count):
            while self._gates and (found := self._pairs(calls, 1)) is None:
                pass
        if not found:
            return
        calls = found[0].calls
        quicker = min(min(pair.baseline_us, pair.contender_us) for pair in found) / 1e6
        self.call_seconds = quicker
        wanted = int(BATCH / max(quicker, 1e-7)) + 1
        self.calls = max(calls, min(wanted, self.exchange.stage.layout.slots, self._most_calls[0]))
        if self.calls > calls and self._pairs(self.calls, 1) is None:
            self.calls = calls
            self._most_calls = [calls, *(fewer for fewer in self._most_calls if fewer < calls)]
        try:
            for number in range(NOOP_BATCHES * len(self.turns.base.worlds)):
                self.noop_batches(number)
        except _NotQueued:
            self._most_calls.clear()
            self.give_up()
            self.cannot_queue = True
        self.turns.stop_all()
        self.exchange.discard_outputs()

    def round(self, number: int) -> None:
        """A few pairs, noted on the clock where there is device time."""
        many = 2 * len(self.turns.base.worlds)
        if not self._gates or (number >= many and number % SELDOM):
            return
        for pair in self._pairs(self.calls, self.pace.gated_pairs, number, probing=True) or ():
            self.clock.note(pair)

    def finish(self) -> None:
        """The probes that are still due."""
        self.probes.hurry = True
        while self._gates and self.probes.open(self.calls):
            self._pairs(self.calls, self.pace.gated_pairs, probing=True)

    def give_up(self) -> None:
        """There is no device time."""
        self._gates.clear()
        self.clock = Clock("device", rival=len(self.turns.kernels) > 1)

    def noop_batches(self, number: int) -> None:
        """A batch of kept results on both sides: what the gate and the copies take. Raises _NotQueued."""
        for side in self.turns.sides:
            world = side.worlds[number % len(side.worlds)]
            seconds = self._gated(side, world, Batch(0, self.calls, noop=True))
            name = CONTENDER if side is self.turns.mine else number % len(side.worlds)
            self.clock.note_noop(name, seconds / self.calls * 1e6)

    def _pairs(self, count: int, wanted: int, number: int = 0, probing: bool = False) -> list[Pair] | None:
        """Pairs of batches on fresh inputs, or None where so many calls cannot be queued.

        number: of the round. probing: some batches, drawn at random, are probes and belong to no pair.
        """
        calls = min(count, self._most_calls[0])
        wanted = max(1, min(wanted, self.exchange.stage.layout.slots // calls))
        self.turns.draw(calls * wanted)
        self.turns.wake(Batch(0, calls), [number % len(self.turns.base.worlds)])
        found: list[Pair] = []
        chosen: list[int] = []
        timed: list[int] = []
        try:
            for place in range(wanted):
                batch = Batch(place * calls, calls)
                if probing and (drawn := self.probes.draw(calls)):
                    self._probe(drawn, batch)
                    continue
                found.append(self._pair(batch, number))
                chosen.append(batch.first + self.turns.random.randrange(calls))
                timed += range(batch.first, batch.first + calls)
        except _NotQueued:
            self.turns.stop_all()
            self.exchange.discard_outputs()
            self._most_calls = [fewer for fewer in self._most_calls if fewer < calls]
            if not self._most_calls:
                self.give_up()
                self.cannot_queue = True
            return None
        self.probes.compare()
        self.turns.compare(chosen, timed)
        return found

    def _probe(self, drawn: Drawn, batch: Batch) -> None:
        """A batch that is stopped while it is queued: what was queued runs, then inputs of later calls are replaced."""
        side, world = drawn.side, drawn.side.worlds[0]
        self._turn += 1
        page = self._gates[world]
        self.turns.get_ready(side, world, batch, self._turn, epoch=page.shut())
        world.go()

        def run_queued() -> None:
            self.turns.reveal(side, batch, "device", watch=False)
            page.open()
            self.turns.timer.sleep(RUNS_SECONDS + 2 * world.calls_begun() * self.call_seconds)

        with self.turns.watched(self.turns.stopped_kernels(world)):
            self.probes.replace(side, drawn.due, world, batch, self.turns.call_seconds, run_queued)
            self.exchange.await_all(world, Kind.QUEUED, self.turns.batch_limit(batch.calls))
            world.tell(FinishBatch())
            self.exchange.await_done(world, self.turns.batch_limit(batch.calls), stops=True)
        self.turns.take(side, batch)

    def _pair(self, batch: Batch, number: int) -> Pair:
        """One batch on either side, in random order."""
        self._turn += 1
        base, mine = self.turns.sides
        reference = number % len(base.worlds)
        first = self.turns.random.random() < 0.5
        order = [(base, base.worlds[reference]), (mine, mine.worlds[0])]
        us = {}
        for side, world in order if first else order[::-1]:
            us[id(side)] = self._gated(side, world, batch) / batch.calls * 1e6
        return Pair(reference, us[id(base)], us[id(mine)], first, batch.calls, number)

    def _gated(self, side: TimedSide, world: World, batch: Batch) -> float:
        """Seconds from the gate's opening to the last rank's completion, on the referee's clock."""
        page = self._gates[world]
        self.turns.get_ready(side, world, batch, self._turn, epoch=page.shut())
        world.go()
        try:
            queued_in = max(QUEUE_SECONDS, QUEUE_SHARE * batch.calls * self.turns.call_seconds)
            self.exchange.await_all(world, Kind.QUEUED, queued_in, may_be_late=True)
        except Deadline:
            self._finish_late(side, world, batch)
            raise _NotQueued from None
        with self.turns.watched(self.turns.stopped_kernels(world)):
            # What is queued reads its inputs when it runs, so they can come this late.
            if self.exchange.sealed:
                self.turns.fill_in(side, world, batch, "device")
            started = page.open()
            world.resume()
            world.tell(FinishBatch())
            ended = page.wait(self.turns.batch_limit(batch.calls))
            done = self.exchange.await_done(world, self.turns.batch_limit(batch.calls), stops=True)
        self.turns.take(side, batch)
        if ended is None or (side.observations is not None and self._went_on(started, ended, done)):
            ended = done
        elif side.observations is None:
            self._done_delays.append((done - ended) / 1e9)
        return (ended - started) / 1e9

    def _went_on(self, started: int, ended: int, done: int) -> bool:
        """Whether a rank worked on after its mark, on a stream that the mark did not wait for. In nanoseconds."""
        allowed = TRAILING_SECONDS + TRAILING_SHARE * (ended - started) / 1e9
        if self._done_delays:
            allowed += 2 * median(self._done_delays)
        return (done - ended) / 1e9 > allowed

    def _finish_late(self, side: TimedSide, world: World, batch: Batch) -> None:
        """Lets a world that waits for its own batch, and so cannot queue it, finish it with the gate open; nothing is timed."""
        self.turns.reveal(side, batch, "device", watch=False)
        self._gates[world].open()
        self.exchange.await_all(world, Kind.QUEUED, self.turns.batch_limit(batch.calls))
        world.tell(FinishBatch())
        self.exchange.await_done(world, self.turns.batch_limit(batch.calls))


class _NotQueued(Exception):
    """A batch could not be launched without waiting for the device."""
