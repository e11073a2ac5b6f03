"""Confirms a difference in speed by batches of one call, in which a kernel cannot work ahead.

A batch of many calls shows how quickly calls follow each other. A kernel that does the work of later calls in an
earlier one saves time there, but not in single calls. Both sides' single calls include the start of a batch, so their
difference shows what a call saves. The baseline never works ahead.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sandbox.protocol.events import Interval
from sandbox.timing.interval import Pair
from sandbox.timing.probes import Probes
from sandbox.timing.turns import Batch, Turns

LEAST_SINGLE_PAIRS, SINGLE_PAIRS, DRAWN_AT_ONCE = 8, 24, 24
"""Fewest pairs of single calls, which are enough if they confirm the lead; usual pairs; iterations that are drawn for
them at once. Simulated kernels that save nothing in single calls had 8 pairs that confirm a lead in 0.2 % of runs."""
MOST_SINGLE_PAIRS, MORE_SECONDS = 96, 1.0
"""If the pairs do not decide, SINGLE_PAIRS more are timed repeatedly: up to this many in total, and for this many seconds."""
HOPELESS = 2.0
"""Pairs end early if their noise would still be this factor above what they must show. A kernel that saves nothing in single
calls then keeps no more leads than with all pairs (simulated)."""
SECONDS = 8.0
"""Slow calls: after this many seconds no pair starts if there are LEAST_SINGLE_PAIRS."""
RESAMPLES = 400
TAIL = 0.005
"""Probability beyond either end of what single calls show."""
LEAST_OFFSET_US = 2.0
"""Standard deviation of the worlds' times to start a batch. If the references differ more, their spread counts."""
LEAST_SAVED = 0.5
"""A single call saves at least this share of the time that a call saves in batches of many calls. Calls that follow
each other may overlap."""
MIDDLE, QUICK = 0.5, 0.25
"""Quantiles of single calls that are compared. Other work makes calls slower, never quicker, so quick calls have less
noise."""
UNDISTURBED = 3
"""The place by duration of the call in place of both where other programs use the cores: most single calls wait for one."""
LARGE = 1.5
"""A lead above this factor must be clear in single calls if no inputs were replaced within batches."""
SLOWED_SHARE = 0.7
"""If the baseline's single calls take less than this share of its calls in batches of many, other work slowed the
batches."""
LEAST_SHARE = 0.02
"""Least share of the baseline's time that a single call is assumed to take, for its speedup."""

Floats = NDArray[np.floating[Any]]


class SingleCalls:
    """The single calls of one run."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.probes = Probes(turns)
        self.pairs: list[Pair] = []

    def measure(
        self, pairs_of: Callable[[Batch], list[Pair]], seconds: Sequence[float], lead: tuple[Interval, float, bool]
    ) -> None:
        """Times the pairs until they decide about a lead, or until more of them could not.

        pairs_of(batch): times a batch on both sides; seconds: per call on (the baseline's, the contender's) side; lead: as for
        `contradict`.

        Raises:
            Failed, OutputsLost, WorldFailed, Deadline: as `Rounds.measure`.
        """
        started = self.turns.timer.monotonic()
        self._measure(LEAST_SINGLE_PAIRS, pairs_of, seconds, started + SECONDS)
        if self.confirm(*lead[:2]):
            return
        self._measure(SINGLE_PAIRS, pairs_of, seconds, started + SECONDS)
        until = self.turns.timer.monotonic() + MORE_SECONDS
        while len(self.pairs) < MOST_SINGLE_PAIRS and self.turns.timer.monotonic() < until and not self.decide(*lead):
            self._measure(len(self.pairs) + SINGLE_PAIRS, pairs_of, seconds, until)

    def _measure(
        self, wanted: int, pairs_of: Callable[[Batch], list[Pair]], seconds: Sequence[float], until: float
    ) -> None:
        """Times pairs until there are `wanted`, or the time is over."""
        most = min(DRAWN_AT_ONCE, self.turns.exchange.prepared.layout.slots)
        while len(self.pairs) < wanted or self.probes.left(1) > 0:
            if len(self.pairs) >= LEAST_SINGLE_PAIRS and self.turns.timer.monotonic() > until:
                return
            self.probes.hurry = len(self.pairs) >= wanted
            at_once = max(1, min(most, wanted - len(self.pairs) + self.probes.left(1)))
            self.turns.draw(at_once)
            self.probes.draw_meaningful(1, at_once)
            timed: list[int] = []
            for place in range(at_once):
                batch = Batch(place, 1)
                if drawn := self.probes.draw(1):
                    self.probes.run(drawn, batch, seconds[drawn.side is self.turns.contender_side])
                    continue
                self.pairs += pairs_of(batch)
                timed.append(place)
            self.probes.compare(timed)
            self.turns.compare(timed[:1], timed)

    def slowed(self, baseline_us: float) -> float | None:
        """Microseconds of the baseline's single calls if other work slowed its batches of many calls; else None.

        Only other work makes its single calls far quicker, because a single call also includes the start of a batch.
        baseline_us: a call in batches of many.
        """
        alone = float(np.median([pair.baseline_us for pair in self.pairs]))
        return alone if alone < SLOWED_SHARE * baseline_us else None

    def saved_us(self, share: float = MIDDLE) -> Floats:
        """[resamples] microseconds that the contender's single call saves.

        It is the difference of quantiles, and of worlds' starts. share: the quantile on a machine that no other program uses.
        """
        share = self._quantile(share)
        chance = np.random.default_rng(0)
        baseline = np.array([pair.baseline_us for pair in self.pairs])
        contender = np.array([pair.contender_us for pair in self.pairs])
        references = np.array([pair.reference for pair in self.pairs])
        starts = [float(np.quantile(baseline[references == number], share)) for number in np.unique(references)]
        offset = chance.normal(0.0, max(LEAST_OFFSET_US, float(np.std(starts))), RESAMPLES)
        some = chance.integers(0, len(baseline), (RESAMPLES, len(baseline)))
        saved: Floats = (
            np.quantile(baseline[some], share, axis=1) - np.quantile(contender[some], share, axis=1) + offset
        )
        return saved

    def speedup(self, baseline_us: float) -> Interval:
        """The speedup of single calls with its 99 % interval. baseline_us: a call of the baseline without its start."""
        saved = np.quantile(self.saved_us(), [TAIL, 0.5, 1 - TAIL])
        low, middle, high = baseline_us / np.maximum(baseline_us - saved, LEAST_SHARE * baseline_us)
        return Interval(float(middle), float(low), float(high))

    def decide(self, call: Interval, baseline_us: float, proven: bool) -> bool:
        """Whether the pairs so far show that single calls save time, or not enough for this lead, or that more are useless."""
        less = math.sqrt(len(self.pairs) / MOST_SINGLE_PAIRS) / HOPELESS
        shows = less * self._noise_us(call, MIDDLE) < _saved_by(call.median, baseline_us)
        useless = proven and not shows and less * self._noise_us(call, QUICK) >= _needed(call, baseline_us)
        return useless or self._saves(call) or self._excludes(call, baseline_us)

    def contradict(self, call: Interval, baseline_us: float, proven: bool) -> bool:
        """Whether single calls contradict a lead of batches of many calls.

        They contradict a lead that they exclude, by their medians or by their quick calls, and never one that they
        confirm. If they do neither, the lead is contradicted if their medians save less than half of it. That requires
        a lead above their noise, or a run without replaced inputs. Without replaced inputs, a large lead that is not
        confirmed is always contradicted.

        baseline_us: a call of the baseline in such batches. proven: inputs were replaced within batches of this run.
        """
        if self._excludes(call, baseline_us):
            return True
        if self._saves(call) or (proven and self._noise_us(call, MIDDLE) >= _saved_by(call.median, baseline_us)):
            return False
        if not proven and max(call.median, 1 / call.median) > LARGE:
            return True
        return self._leader_saves(call, MIDDLE, 0.5) < LEAST_SAVED * _saved_by(call.median, baseline_us)

    def confirm(self, call: Interval, baseline_us: float) -> bool:
        """Whether single calls show that they save what this lead needs. baseline_us: as for `contradict`."""
        if len(self.pairs) < LEAST_SINGLE_PAIRS:
            return False
        return self._leader_saves(call, MIDDLE, TAIL) >= _needed(call, baseline_us)

    def _excludes(self, call: Interval, baseline_us: float) -> bool:
        """Whether single calls save less than the lead needs."""
        needed = _needed(call, baseline_us)
        if self._leader_saves(call, MIDDLE, 1 - TAIL) < needed:
            return True
        quick = self._leader_saves(call, QUICK, 1 - TAIL)
        return quick < needed and self._leader_saves(call, MIDDLE, 0.5) < needed

    def _quantile(self, share: float) -> float:
        return min(MIDDLE, UNDISTURBED / len(self.pairs)) if max(self.turns.waited) > 0 else share

    def _noise_us(self, call: Interval, share: float) -> float:
        """Half width in microseconds of a saving by the slower side's noise, which gains that side nothing. share: quantile."""
        chance = np.random.default_rng(0)
        times = np.array([pair.baseline_us if call.low > 1 else pair.contender_us for pair in self.pairs])
        found = np.quantile(chance.choice(times, (RESAMPLES, len(times))), self._quantile(share), axis=1)
        return float(math.sqrt(0.5) * np.ptp(np.quantile(found, [TAIL, 1 - TAIL])))

    def _saves(self, call: Interval) -> bool:
        """Whether single calls show that the leading side saves time."""
        return self._leader_saves(call, MIDDLE, TAIL) > 0

    def _leader_saves(self, call: Interval, share: float, tail: float) -> float:
        """Microseconds that a single call of the leading side saves. share: the quantile of calls; tail: that of resamples."""
        saved = self.saved_us(share)
        return float(np.quantile(saved if call.low > 1 else -saved, tail))


def _needed(call: Interval, baseline_us: float) -> float:
    """Microseconds that a single call of the leading side must save for this lead."""
    return LEAST_SAVED * _saved_by(call.low if call.low > 1 else call.high, baseline_us)


def _saved_by(speedup: float, baseline_us: float) -> float:
    """Microseconds that a call of the leading side saves at a speedup. baseline_us: a call of the baseline."""
    return baseline_us * abs(1 - 1 / speedup)
