"""Timing: rounds of the same iterations in both worlds, in random order, until the interval settles."""

import os
import random
import time
from collections.abc import Callable
from statistics import median

from sandbox import interval, processes
from sandbox.clocks import Clock, Looks, Wait
from sandbox.events import Interval, Run, Samples, Timed
from sandbox.exchange import Exchange, Failed
from sandbox.frames import Kind
from sandbox.gate import GatePage
from sandbox.roofline import Peaks, bound_us
from sandbox.verdict import Verdict
from sandbox.world import Deadline, World

MAX_ROUNDS = 101
CONTENDER_BATCH = 0.003
"""Seconds that a batch of the contender should last at the least."""
BASELINE_BATCH = 0.030
"""Seconds that a batch of the baseline may last for the contender's sake."""
LATE_SECONDS = 0.05
DISTURBED_SHARE = 0.2
QUEUE_SECONDS, QUEUE_SHARE = 0.25, 10.0
"""A batch that is not queued behind the closed gate by then, or in so many times what its calls take with the gate open, waits
for the device: it has no device time."""
GATED_BATCH = 0.005
"""Seconds that a gated batch should last: a world's switch and the ranks' meeting are taken off, but not to the microsecond."""
GATED_CALLS = (128, 32, 4, 1)
"""Calls of a gated batch at the most: fewer are tried when a launch queue is too short for more."""
TRAILING_SHARE, TRAILING_SECONDS = 0.05, 300e-6
"""How much later than its gate mark a rank may be done, beside what the baseline's ranks need to say so."""


Batch = Callable[[], float]


class Rounds:
    """The timing phase of one run."""

    def __init__(self, run: Run, exchange: Exchange, peaks: Peaks) -> None:
        self.run = run
        self.exchange = exchange
        self.peaks = peaks
        self.contender = exchange.contender
        self.baseline = exchange.baseline
        self.limits = exchange.stage.limits
        self.margin = interval.MARGIN[run.setting.device]
        self.least = interval.MIN_ROUNDS[run.setting.device]
        self.random = random.SystemRandom()
        self.call = Clock()
        self.device = Clock()
        self.baseline_wait = Wait()
        self.contender_wait = Wait()
        self.gates: dict[World, GatePage] = {}
        self.gated_calls = list(GATED_CALLS)
        self.cannot_queue = False
        """Not even one call can be launched without waiting for the GPU."""
        self.fastest = float("inf")
        """Shortest time per call of any batch in microseconds, nothing subtracted."""
        self.stopped = False
        self.frozen: list[int] = []
        self.stolen = 0.0
        """CPU seconds that the contender used while the baseline was timed."""
        self.baseline_seconds = 0.0
        self.looks = Looks()
        self.baseline_first = True
        self.empty_gate: dict[World, float] = {}
        """Seconds from the gate's opening to the last rank's completion when nothing is queued behind it."""
        self.gated_count = 0
        self.call_seconds = 0.0
        """The slower side's, with the gate open."""
        self.words: list[float] = []
        """Seconds that the baseline's ranks needed to say that they are done, after their marks, by batch."""

    def measure(self) -> None:
        """Runs rounds until as many as asked are done, the interval settles, or the budget is spent.

        Raises:
            Failed: a timed iteration was wrong or late, the baseline was disturbed, or the time is impossible.
        """
        wanted, budget = self.run.rounds, self.run.budget_s
        until = time.monotonic() + budget
        count = self.exchange.stage.calls
        self.install_gates()
        empty = self.empty_batch()
        base, theirs = self.round(count, first=True)
        # The first pair warms caches and page tables of both worlds, and shows how short the contender's calls are.
        count = self.calls_for(base / count, theirs / count)
        self.try_gates(count, max(base, theirs) / count)
        shown = 0.0
        for done in range(1, (wanted or MAX_ROUNDS) + 1):
            base, theirs = self.round(count)
            self.fastest = min(self.fastest, theirs / count * 1e6)
            first = self.baseline_first
            self.call.note(max(base - empty, base / 2), max(theirs - empty, theirs / 2), count, first)
            if self.gates and (pair := self.gated_round(self.gated_count)):
                self.device.note(*pair, self.baseline_first)
            now = time.monotonic()
            spent = wanted is None and now >= until and (done >= self.least or now > until + budget)
            if now - shown > 0.1 or spent:
                shown = now
                speed = self.show(done, wanted or self.expected_rounds(done, until, budget), count)
                if spent or (wanted is None and done >= self.least and interval.settled(speed, self.margin)):
                    break
        self.show(len(self.call.batches), len(self.call.batches), count)
        self.look_back()

    def samples(self) -> Samples:
        """All of it, for the record."""
        empty, looks = self.empty_gate.get(self.baseline, 0.0) * 1e6, self.looks.foreign_us
        return Samples(
            call=self.call.batches, device=self.device.batches, empty_gate_us=empty, foreign_us=looks
        )

    def show(self, done: int, rounds: int, calls: int) -> Interval:
        """The speedup so far, as an event."""
        speed = self.call.settle(self.margin, (self.baseline_wait.share(), self.contender_wait.share()))
        assert speed is not None
        self.exchange.emit(
            Timed(
                run_id=self.run.run_id,
                round=done,
                rounds=rounds,
                calls=calls,
                baseline_us=self.call.baseline_us[-1],
                contender_us=self.call.contender_us[-1],
                call=speed,
                device=self.device.settle(self.margin),
            )
        )
        return speed

    def calls_for(self, base: float, theirs: float) -> int:
        """Calls a batch: long enough for the quicker side, unless the other then takes too long (seconds per call)."""
        wanted = int(CONTENDER_BATCH / max(theirs, 1e-7)) + 1
        bearable = int(BASELINE_BATCH / max(base, 1e-7))
        return min(max(self.exchange.stage.calls, min(wanted, bearable)), self.exchange.stage.layout["slots"])

    @staticmethod
    def expected_rounds(done: int, until: float, budget: float) -> int:
        """How many rounds fit the budget at this pace."""
        left = until - time.monotonic()
        return max(done, min(MAX_ROUNDS, int(done * budget / max(budget - left, 1e-3))))

    # --- call time -------------------------------------------------------------------------------------------

    def empty_batch(self) -> float:
        """Seconds that GO and DONE take by themselves (the smallest of a few, in the baseline world)."""
        world = self.exchange.baseline
        world.tell(Kind.ARM, {"slots": [], "checking": False})
        self.exchange.await_all(world, Kind.ARMED, self.limits.own)
        return min(self.clocked(world) for _ in range(5))

    def clocked(self, world: World) -> float:
        """Seconds from GO until the last rank is done, on the referee's clock."""
        if self.exchange.sealed:
            self.exchange.wake(world)
            paused = self.reveal_to_paused(world, "call")
        else:
            paused = self.hand_over(world)
        started = world.go(paused)
        limit = self.limits.own if world.trusted else self.limits.batch
        return (self.exchange.await_done(world, limit) - started) / 1e9

    def hand_over(self, world: World) -> list[int]:
        """Without sealed memory a world copies its inputs by itself, before GO: what it does with them then nobody sees."""
        self.reveal_to(world, watch=False)
        self.exchange.wake(world)
        return []

    def round(self, count: int, first: bool = False) -> tuple[float, float]:
        """One batch in each world on the same fresh iterations, (baseline, contender) seconds; one of them is compared."""
        self.freeze(True)
        self.contender.check_memory()
        self.exchange.draw(count, expect_poison=not first)
        base, theirs = self.in_random_order(self.run_baseline, self.run_contender)
        self.compare_one(count)
        return base, theirs

    def in_random_order(self, first: Batch, second: Batch) -> tuple[float, float]:
        """Runs both batches, in either order; returns (first, second) seconds."""
        self.baseline_first = self.random.random() < 0.5
        if self.baseline_first:
            a = first()
            return a, second()
        b = second()
        return first(), b

    def compare_one(self, count: int) -> None:
        """A random one of the iterations that were just timed is compared, on every rank."""
        self.freeze(True)
        verdict, failure = self.exchange.compare([self.random.randrange(count)], ran=True)
        if failure is not None:
            raise Failed(verdict, failure)

    def run_baseline(self) -> float:
        """The baseline's batch, with the contender frozen and its CPU use watched."""
        self.freeze(True)
        self.exchange.arm(self.baseline)
        before = processes.cpu_seconds(self.frozen)
        seconds = self.watched(self.baseline, self.baseline_wait)
        self.stolen += processes.cpu_seconds(self.frozen) - before
        self.baseline_seconds += seconds
        return seconds

    def watched(self, world: World, wait: Wait) -> float:
        """Times a batch and notes how long its ranks waited for a core.

        More ranks than cores wait for each other in both worlds alike; that is no disturbance.
        """
        enough = world.ranks <= len(os.sched_getaffinity(0))
        before = processes.waited_seconds(world.rank_pids) if enough else 0.0
        seconds = self.clocked(world)
        if enough:
            wait.waited += processes.waited_seconds(world.rank_pids) - before
        wait.seconds += seconds * world.ranks
        return seconds

    def run_contender(self) -> float:
        """The contender's batch; its inputs are complete only at its start."""
        self.freeze(False)
        self.exchange.arm(self.contender)
        return self.watched(self.contender, self.contender_wait)

    def reveal_to_paused(self, world: World, clock: str) -> list[int]:
        """Completes a world's inputs while none of its processes runs: nobody can work on them before GO.

        clock: "call" or "device". The baseline is stopped for a moment too: what continuing costs, it costs both sides.
        Returns whom to continue.
        """
        if world.trusted:
            foreign = self.reveal_to(world)
            paused = processes.pause_tree(world.process.pid)
        else:
            paused = processes.pause_tree(world.process.pid)
            foreign = self.reveal_to(world)
        self.note_look(world, clock, foreign)
        return paused

    def reveal_to(self, world: World, watch: bool = True) -> float:
        """Completes a world's inputs; microseconds as `Exchange.reveal` says."""
        if world.trusted:
            return self.exchange.reveal(own=True, watch=watch)
        return self.exchange.reveal(self.side_of(world), watch=watch)

    def side_of(self, world: World) -> int:
        """Whose arenas a contender's are."""
        return self.exchange.side

    def note_look(self, world: World, clock: str, foreign_us: float) -> None:
        """Whatever else ran on the devices right before a world's batch is laid at the contender's door."""
        self.looks.note(f"{'contender' if world is self.contender else 'baseline'}, {clock}", foreign_us)

    def freeze(self, stop: bool) -> None:
        """Stops or continues every process of the contender. Who is stopped cannot fork: so it is looked through only once."""
        if stop == self.stopped:
            return
        if stop:
            self.frozen = processes.pause_tree(self.contender.process.pid)
        else:
            processes.resume(self.frozen)
        self.stopped = stop

    # --- device time -----------------------------------------------------------------------------------------

    def install_gates(self) -> None:
        """GPU worlds get a gate each; CPU ranks have no device time."""
        if self.run.setting.device != "cuda":
            return
        for world in {self.exchange.baseline, self.baseline, self.contender}:
            page = world.gate or GatePage(world.ranks)
            if world.gate is None:
                world.tell(Kind.GATE, {}, fds=(page.fd,))
                self.exchange.await_all(world, Kind.GATED, self.limits.own)
                world.gate = page
            self.gates[world] = page

    def try_gates(self, count: int, call_seconds: float) -> None:
        """Finds out whether the calls can be queued at all, then how many, then what the gate costs; nothing of it counts."""
        self.call_seconds = call_seconds
        for calls in (1, count):
            while self.gates and (found := self.gated_round(calls)) is None:
                pass
        if not self.gates:
            return
        assert found is not None
        base, theirs, calls = found
        wanted = int(GATED_BATCH * calls / max(min(base, theirs), 1e-7)) + 1
        self.gated_count = min(max(wanted, calls), self.exchange.stage.layout["slots"])
        if self.gated_count > calls and self.gated_round(self.gated_count) is None:
            self.gated_count = calls
        own = self.empty_gated_batch(self.exchange.baseline)
        self.empty_gate = {
            # What a contender says of itself counts only where it is less, which is to its own disadvantage.
            world: own if world.trusted else min(own, self.empty_gated_batch(world))
            for world in (self.baseline, self.contender)
        }

    def gated_round(self, count: int) -> tuple[float, float, int] | None:
        """One batch in each world behind the gate: (baseline, contender, calls), or None where there is no device time."""
        calls = min(count, self.gated_calls[0])
        self.freeze(True)
        self.exchange.draw(calls, expect_poison=True)

        def baseline() -> float:
            self.freeze(True)
            return self.gated(self.baseline)

        def contender() -> float:
            self.freeze(False)
            return self.gated(self.contender)

        try:
            base, theirs = self.in_random_order(baseline, contender)
        except _NotQueued:
            self.exchange.discard_outputs()
            self.gated_calls = [fewer for fewer in self.gated_calls if fewer < calls]
            if not self.gated_calls:
                self.gates.clear()
                self.device = Clock()
                self.cannot_queue = True
            return None
        self.compare_one(calls)
        return base, theirs, calls

    def empty_gated_batch(self, world: World) -> float:
        """Seconds that the gate takes by itself: switching contexts, the ranks' meeting behind it, the marks."""
        self.exchange.tables = [[] for _ in self.exchange.tables]
        self.freeze(world.trusted)
        return median(self.gated(world) for _ in range(5))

    def gated(self, world: World) -> float:
        """Seconds from the gate's opening to the last rank's completion, on the referee's clock."""
        page = self.gates[world]
        self.exchange.arm(world, epoch=page.shut())
        if not self.exchange.sealed:
            self.hand_over(world)
        world.go()
        try:
            queued_in = max(QUEUE_SECONDS, QUEUE_SHARE * len(self.exchange.tables[0]) * self.call_seconds)
            self.exchange.await_all(world, Kind.QUEUED, queued_in, may_be_late=True)
        except Deadline:
            self.finish_late(world)
            raise _NotQueued from None
        # What is queued reads its inputs when it runs, so they can come this late.
        paused = self.reveal_to_paused(world, "device") if self.exchange.sealed else []
        started = page.open()
        processes.resume(paused)
        world.tell(Kind.FINISH)
        ended = page.wait(self.limits.batch)
        done = self.exchange.await_done(world, self.limits.batch)
        if ended is None or (not world.trusted and self.went_on(started, ended, done)):
            ended = done
        elif world.trusted and self.exchange.tables[0]:
            self.words.append((done - ended) / 1e9)
        return (ended - started) / 1e9 - self.empty_gate.get(world, 0.0)

    def went_on(self, started: int, ended: int, done: int) -> bool:
        """Whether a rank worked on after its mark, on a stream that the mark did not wait for. In nanoseconds."""
        allowed = TRAILING_SECONDS + TRAILING_SHARE * (ended - started) / 1e9
        if self.words:
            allowed += 2 * median(self.words)
        return (done - ended) / 1e9 > allowed

    def finish_late(self, world: World) -> None:
        """Lets a world that waits for its own batch, and so cannot queue it, finish it with the gate open; nothing is timed."""
        if not world.trusted:  # a trusted rank has its inputs, and cannot complete others' while it waits
            self.exchange.reveal(self.side_of(world))
        self.gates[world].open()
        self.exchange.await_all(world, Kind.QUEUED, self.limits.batch)
        world.tell(Kind.FINISH)
        self.exchange.await_done(world, self.limits.batch)

    # --- afterwards ------------------------------------------------------------------------------------------

    def look_back(self) -> None:
        """Late writers get one last chance to be seen; a disturbed baseline or an impossible time ends the run."""
        self.freeze(False)
        time.sleep(LATE_SECONDS)
        self.exchange.require_untouched()
        if self.stolen > DISTURBED_SHARE * self.baseline_seconds and self.stolen > 0.05:
            message = f"the kernel's processes used {self.stolen:.2f} s of CPU while the baseline was timed"
            raise Failed(
                Verdict.BASELINE_DISTURBED, self.exchange.failure(message, Verdict.BASELINE_DISTURBED)
            )
        if self.looks.fault:
            verdict = Verdict.BASELINE_DISTURBED
            raise Failed(verdict, self.exchange.failure(self.looks.fault, verdict))
        floor, limiter = bound_us(self.run.setting, self.peaks.impossible())
        if self.fastest < floor:
            message = f"{self.fastest:.3f} us a call, but {limiter} alone needs {floor:.3f} us"
            raise Failed(Verdict.IMPOSSIBLE_SPEED, self.exchange.failure(message, Verdict.IMPOSSIBLE_SPEED))


class _NotQueued(Exception):
    """A batch could not be launched without waiting for the device."""
