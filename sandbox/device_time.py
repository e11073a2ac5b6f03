"""Device time: batches queued behind the starting gate, from its opening to the last rank's completion.

CPU ranks have none, and neither have kernels that wait for the GPU within a call.
"""

from statistics import median

from sandbox import interval, processes
from sandbox.clocks import Clock
from sandbox.events import Interval
from sandbox.frames import Kind
from sandbox.gate import GatePage
from sandbox.turns import Turns
from sandbox.world import Deadline, World

QUEUE_SECONDS, QUEUE_SHARE = 0.25, 10.0
"""A batch that is not queued behind the closed gate by then, or in so many times what its calls take with the gate open, waits
for the device: it has no device time."""
BATCH = 0.005
"""Seconds that a batch should last: a world's switch and the ranks' meeting are taken off, but not to the microsecond."""
CALLS = (128, 32, 4, 1)
"""Calls of a batch at the most: fewer are tried when a launch queue is too short for more."""
TRAILING_SHARE, TRAILING_SECONDS = 0.05, 300e-6
"""How much later than its gate mark a rank may be done, beside what the baseline's ranks need to say so."""


class DeviceTime:
    """The second clock of one run."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.exchange = turns.exchange
        self.limits = turns.limits
        self.clock = Clock()
        self.cannot_queue = False
        """Not even one call can be launched without waiting for the GPU."""
        self.empty_gate: dict[World, float] = {}
        """Seconds from the gate's opening to the last rank's completion when nothing is queued behind it."""
        self._gates: dict[World, GatePage] = {}
        self._most_calls = list(CALLS)
        self._calls = 0
        """Of a batch, as found out."""
        self._call_seconds = 0.0
        """The slower side's, with the gate open."""
        self._words: list[float] = []
        """Seconds that the baseline's ranks needed to say that they are done, after their marks, by batch."""

    def install(self) -> None:
        """GPU worlds get a gate each, the baseline's own world also where a rival is in its place."""
        if self.turns.setting.device != "cuda":
            return
        for world in self.turns.worlds:
            page = world.gate or GatePage(world.ranks)
            if world.gate is None:
                world.tell(Kind.GATE, {}, fds=(page.fd,))
                self.exchange.await_all(world, Kind.GATED, self.limits.own)
                world.gate = page
            self._gates[world] = page

    def try_out(self, count: int, call_seconds: float) -> None:
        """Finds out whether the calls can be queued at all, then how many, then what the gate costs; nothing of it counts.

        count: calls of a batch with the gate open; call_seconds: how long one takes on the slower side.
        """
        self._call_seconds = call_seconds
        for calls in (1, count):
            while self._gates and (found := self._batches(calls)) is None:
                pass
        if not self._gates:
            return
        assert found is not None
        base, theirs, calls = found
        wanted = int(BATCH * calls / max(min(base, theirs), 1e-7)) + 1
        self._calls = min(max(wanted, calls), self.exchange.stage.layout["slots"])
        if self._calls > calls and self._batches(self._calls) is None:
            self._calls = calls
        own = self._empty_batch(self.exchange.baseline)
        self.empty_gate = {
            # What a contender says of itself counts only where it is less, which is to its own disadvantage.
            world: own if world.trusted else min(own, self._empty_batch(world))
            for world in (self.turns.baseline, self.turns.contender)
        }

    def round(self) -> None:
        """A batch in each world, noted on the clock where there is device time."""
        if self._gates and (pair := self._batches(self._calls)):
            self.clock.note(*pair, self.turns.baseline_first)

    def settle(self, margin: float, call: Clock) -> Interval | None:
        """The speedup so far. margin: of call time, whose rounds `call` has."""
        if not self.clock.batches:
            return None
        sides = (
            (call.baseline_us, self.clock.baseline_us),
            (call.contender_us, self.clock.contender_us),
        )
        return self.clock.settle(
            max(interval.device_margin(margin, median(called), median(ran)) for called, ran in sides)
        )

    def _batches(self, count: int) -> tuple[float, float, int] | None:
        """One batch in each world: (baseline's seconds, contender's, calls), or None where so many cannot be queued."""
        calls = min(count, self._most_calls[0])
        self.turns.draw(calls)
        try:
            base, theirs = self.turns.in_random_order(self._gated)
        except _NotQueued:
            self.turns.rest()
            self.exchange.discard_outputs()
            self._most_calls = [fewer for fewer in self._most_calls if fewer < calls]
            if not self._most_calls:
                self._gates.clear()
                self.clock = Clock()
                self.cannot_queue = True
            return None
        self.turns.compare_one(calls)
        return base, theirs, calls

    def _empty_batch(self, world: World) -> float:
        """Seconds that the gate takes by itself: switching contexts, the ranks' meeting behind it, the marks."""
        self.exchange.tables = [[] for _ in self.exchange.tables]
        return median(self._gated(world) for _ in range(5))

    def _gated(self, world: World) -> float:
        """Seconds from the gate's opening to the last rank's completion, on the referee's clock."""
        page = self._gates[world]
        self.turns.let(world)
        self.exchange.arm(world, epoch=page.shut())
        if not self.exchange.sealed:
            self.turns.hand_over(world)
        world.go()
        try:
            queued_in = max(QUEUE_SECONDS, QUEUE_SHARE * len(self.exchange.tables[0]) * self._call_seconds)
            self.exchange.await_all(world, Kind.QUEUED, queued_in, may_be_late=True)
        except Deadline:
            self._finish_late(world)
            raise _NotQueued from None
        # What is queued reads its inputs when it runs, so they can come this late.
        paused = self.turns.reveal_to_paused(world, "device") if self.exchange.sealed else []
        started = page.open()
        processes.resume(paused)
        world.tell(Kind.FINISH)
        ended = page.wait(self.limits.batch)
        done = self.exchange.await_done(world, self.limits.batch)
        if ended is None or (not world.trusted and self._went_on(started, ended, done)):
            ended = done
        elif world.trusted and self.exchange.tables[0]:
            self._words.append((done - ended) / 1e9)
        return (ended - started) / 1e9 - self.empty_gate.get(world, 0.0)

    def _went_on(self, started: int, ended: int, done: int) -> bool:
        """Whether a rank worked on after its mark, on a stream that the mark did not wait for. In nanoseconds."""
        allowed = TRAILING_SECONDS + TRAILING_SHARE * (ended - started) / 1e9
        if self._words:
            allowed += 2 * median(self._words)
        return (done - ended) / 1e9 > allowed

    def _finish_late(self, world: World) -> None:
        """Lets a world that waits for its own batch, and so cannot queue it, finish it with the gate open; nothing is timed."""
        if not world.trusted:  # a trusted rank has its inputs, and cannot complete others' while it waits
            self.turns.reveal_to(world, watch=False)
        self._gates[world].open()
        self.exchange.await_all(world, Kind.QUEUED, self.limits.batch)
        world.tell(Kind.FINISH)
        self.exchange.await_done(world, self.limits.batch)


class _NotQueued(Exception):
    """A batch could not be launched without waiting for the device."""
