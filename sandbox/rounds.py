"""Timing: rounds of the same iterations in both worlds, in random order, until the interval settles."""

import random
import signal
import time

from sandbox import interval, processes
from sandbox.events import Interval, Run, Timed
from sandbox.exchange import Exchange, Failed
from sandbox.frames import Kind
from sandbox.roofline import Peaks, bound_us
from sandbox.verdict import Verdict
from sandbox.world import World

MAX_ROUNDS = 101
CONTENDER_BATCH = 0.003
"""Seconds that a batch of the contender should last at the least."""
BASELINE_BATCH = 0.030
"""Seconds that a batch of the baseline may last for the contender's sake."""
LATE_SECONDS = 0.05
DISTURBED_SHARE = 0.2


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
        self.random = random.SystemRandom()
        self.baseline_us: list[float] = []
        self.contender_us: list[float] = []
        self.speed: Interval | None = None
        self.fastest = float("inf")
        """Shortest time per call of any batch, nothing subtracted."""
        self.frozen: list[int] = []
        self.stolen = 0.0
        """CPU seconds that the contender used while the baseline was timed."""
        self.baseline_seconds = 0.0

    def measure(self) -> None:
        """Runs rounds until as many as asked are done, the interval settles, or the budget is spent.

        Raises:
            Failed: a timed iteration was wrong or late, the baseline was disturbed, or the time is impossible.
        """
        wanted, budget = self.run.rounds, self.run.budget_s
        until = time.monotonic() + budget
        count = self.exchange.stage.calls
        empty = self.empty_batch()
        base, theirs = self.round(count, first=True)
        # The first pair warms caches and page tables of both worlds, and shows how short the contender's calls are.
        count = self.calls_for(base / count, theirs / count)
        shown = 0.0
        for done in range(1, (wanted or MAX_ROUNDS) + 1):
            base, theirs = self.round(count)
            self.baseline_us.append(max(base - empty, base / 2) / count * 1e6)
            self.contender_us.append(max(theirs - empty, theirs / 2) / count * 1e6)
            self.fastest = min(self.fastest, theirs / count * 1e6)
            now = time.monotonic()
            spent = wanted is None and now >= until and (done >= interval.MIN_ROUNDS or now > until + budget)
            if now - shown > 0.1 or spent:
                shown = now
                self.show(done, wanted or self.expected_rounds(done, until, budget), count)
                assert self.speed is not None
                if spent or (
                    wanted is None
                    and done >= interval.MIN_ROUNDS
                    and interval.settled(self.speed, self.margin)
                ):
                    break
        self.show(len(self.contender_us), len(self.contender_us), count)
        self.look_back()

    def show(self, done: int, rounds: int, calls: int) -> None:
        """The speedup so far, as an event."""
        self.speed = interval.speedup(self.baseline_us, self.contender_us, self.margin)
        self.exchange.emit(
            Timed(
                run_id=self.run.run_id,
                round=done,
                rounds=rounds,
                calls=calls,
                baseline_us=self.baseline_us[-1],
                contender_us=self.contender_us[-1],
                call=self.speed,
            )
        )

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

    def empty_batch(self) -> float:
        """Seconds that GO and DONE take by themselves (the smallest of a few, in the baseline world)."""
        self.baseline.tell(Kind.ARM, {"slots": [], "checking": False})
        self.exchange.await_all(self.baseline, Kind.ARMED, self.limits.own)
        return min(self.clocked(self.baseline) for _ in range(5))

    def clocked(self, world: World) -> float:
        """Seconds from GO until the last rank is done, on the referee's clock."""
        started = world.go()
        self.exchange.await_all(world, Kind.DONE, self.limits.batch)
        return (time.perf_counter_ns() - started) / 1e9

    def round(self, count: int, first: bool = False) -> tuple[float, float]:
        """One batch in each world on the same fresh iterations, (baseline, contender) seconds; one of them is compared."""
        self.freeze(True)
        self.exchange.draw(count, expect_poison=not first)
        self.exchange.arm(self.baseline)
        if self.random.random() < 0.5:
            base = self.run_baseline()
            theirs = self.run_contender()
        else:
            theirs = self.run_contender()
            base = self.run_baseline()
        self.freeze(True)
        verdict, failure = self.exchange.compare([self.random.randrange(count)], ran=True)
        if failure is not None:
            raise Failed(verdict, failure)
        return base, theirs

    def run_baseline(self) -> float:
        """The baseline's batch, with the contender frozen and its CPU use watched."""
        self.freeze(True)
        before = processes.cpu_seconds(self.frozen)
        seconds = self.clocked(self.baseline)
        self.stolen += processes.cpu_seconds(self.frozen) - before
        self.baseline_seconds += seconds
        return seconds

    def run_contender(self) -> float:
        """The contender's batch; its inputs are complete only now."""
        self.freeze(False)
        self.exchange.arm(self.contender)
        self.exchange.reveal()
        return self.clocked(self.contender)

    def freeze(self, stop: bool) -> None:
        """Stops or continues every process of the contender."""
        self.frozen = processes.signal_tree(
            self.contender.process.pid, signal.SIGSTOP if stop else signal.SIGCONT
        )

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
        floor, limiter = bound_us(self.run.setting, self.peaks.impossible())
        if self.fastest < floor:
            message = f"{self.fastest:.3f} us a call, but {limiter} alone needs {floor:.3f} us"
            raise Failed(Verdict.IMPOSSIBLE_SPEED, self.exchange.failure(message, Verdict.IMPOSSIBLE_SPEED))
