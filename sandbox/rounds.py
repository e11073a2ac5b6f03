"""Timing: rounds of the same iterations in both worlds, in random order, until the interval settles."""

import time

from sandbox import interval
from sandbox.clocks import Clock
from sandbox.device_time import DeviceTime
from sandbox.events import Interval, Run, Samples, Timed
from sandbox.roofline import Peaks
from sandbox.turns import Turns

MAX_ROUNDS = 101
CONTENDER_BATCH = 0.003
"""Seconds that a batch of the contender should last at the least."""
BASELINE_BATCH = 0.030
"""Seconds that a batch of the baseline may last for the contender's sake."""


class Rounds:
    """The timing phase of one run."""

    def __init__(self, run: Run, turns: Turns, peaks: Peaks) -> None:
        self.run = run
        self.turns = turns
        self.peaks = peaks
        self.stage = turns.exchange.stage
        self.margin = interval.MARGIN[run.setting.device]
        self.least = interval.MIN_ROUNDS[run.setting.device]
        self.call = Clock()
        self.behind_gate = DeviceTime(turns)

    @property
    def device(self) -> Clock:
        """Device time; empty where there is none."""
        return self.behind_gate.clock

    def measure(self) -> None:
        """Runs rounds until as many as asked are done, the interval settles, or the budget is spent.

        Raises:
            Failed: a timed iteration was wrong or late, the baseline was disturbed, or the time is impossible.
        """
        wanted, budget = self.run.rounds, self.run.budget_s
        until = time.monotonic() + budget
        count = self.stage.calls
        self.turns.settle_threads()
        self.behind_gate.install()
        empty = self.turns.empty_batch()
        base, theirs = self.round(count, first=True)
        # The first pair warms caches and page tables of both worlds, and shows how short the contender's calls are.
        count = self.calls_for(base / count, theirs / count)
        self.behind_gate.try_out(count, max(base, theirs) / count)
        shown = 0.0
        for done in range(1, (wanted or MAX_ROUNDS) + 1):
            base, theirs = self.round(count)
            first = self.turns.baseline_first
            self.call.note(max(base - empty, base / 2), max(theirs - empty, theirs / 2), count, first)
            self.behind_gate.round()
            now = time.monotonic()
            spent = wanted is None and now >= until and (done >= self.least or now > until + budget)
            if now - shown > 0.1 or spent:
                shown = now
                speed = self.show(done, wanted or self.expected_rounds(done, until, budget), count)
                if spent or (wanted is None and done >= self.least and interval.settled(speed, self.margin)):
                    break
        self.show(len(self.call.batches), len(self.call.batches), count)
        self.turns.look_back(self.peaks)

    def round(self, count: int, first: bool = False) -> tuple[float, float]:
        """One batch in each world on the same fresh iterations, (baseline, contender) seconds; one of them is compared."""
        self.turns.check_memory()
        self.turns.draw(count, expect_poison=not first)
        base, theirs = self.turns.in_random_order(self.turns.timed)
        self.turns.note_quickest(base / count, theirs / count)
        self.turns.compare_one(count)
        return base, theirs

    def samples(self) -> Samples:
        """All of it, for the record."""
        return Samples(
            call=self.call.batches,
            device=self.device.batches,
            empty_gate_us=self.behind_gate.empty_gate.get(self.turns.baseline, 0.0) * 1e6,
            foreign_us=self.turns.accounts[0].looks.foreign_us,
        )

    def show(self, done: int, rounds: int, calls: int) -> Interval:
        """The speedup so far, as an event."""
        waits = self.turns.waits
        shares = (waits[self.turns.baseline].share(), waits[self.turns.contender].share())
        speed = self.call.settle(self.margin, shares)
        assert speed is not None
        self.turns.exchange.emit(
            Timed(
                run_id=self.run.run_id,
                round=done,
                rounds=rounds,
                calls=calls,
                baseline_us=self.call.baseline_us[-1],
                contender_us=self.call.contender_us[-1],
                call=speed,
                device=self.behind_gate.settle(self.margin, self.call),
            )
        )
        return speed

    def calls_for(self, base: float, theirs: float) -> int:
        """Calls a batch: long enough for the quicker side, unless the other then takes too long (seconds per call)."""
        wanted = int(CONTENDER_BATCH / max(theirs, 1e-7)) + 1
        bearable = int(BASELINE_BATCH / max(base, 1e-7))
        return min(max(self.stage.calls, min(wanted, bearable)), self.stage.layout["slots"])

    @staticmethod
    def expected_rounds(done: int, until: float, budget: float) -> int:
        """How many rounds fit the budget at this pace."""
        left = until - time.monotonic()
        return max(done, min(MAX_ROUNDS, int(done * budget / max(budget - left, 1e-3))))
