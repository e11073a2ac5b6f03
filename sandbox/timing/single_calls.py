"""A second witness for a difference in speed: batches of one call, which leave a kernel nothing to do ahead.

A batch of many calls shows how quickly calls follow each other. A kernel that does the work of later calls in an earlier one
is far quicker there than in single calls. A single call takes longer by what starting a batch takes, which no-op batches of the
reference worlds show.
"""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sandbox.protocol.events import Interval
from sandbox.timing.interval import TAIL, Pair
from sandbox.timing.probes import Probes
from sandbox.timing.turns import Batch, Turns

PAIRS, DRAWN_AT_ONCE = 24, 12
"""Pairs of single calls, and iterations that are drawn for them at once."""
SECONDS, LEAST_PAIRS = 8.0, 8
"""Slow calls: no pair is begun after so many seconds, once there are so many."""
RESAMPLES = 400
LEAST_OFFSET_US = 2.0
"""Worlds differ by this in how soon they start (standard deviation), or by more where the references do."""
TINY_US = 1e-3
LEAST_SHARE = 0.02
"""Of a single call's time that remains at the least when the start is taken off."""
TOLERANCE = 1.5
"""So far may a speedup go beyond that of single calls: calls that follow each other overlap."""
LEAST_SAVED = 0.5
"""Of the time that a call in a batch of many saves, a single call saves at least this share."""
Floats = NDArray[np.floating[Any]]


class SingleCalls:
    """The single calls of one run."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.probes = Probes(turns)
        self.pairs: list[Pair] = []
        self.starts: dict[int, list[float]] = {}
        """Microseconds of no-op batches of one call, by reference."""

    def measure(self, pairs_of: Callable[[Batch], list[Pair]], seconds: Sequence[float]) -> None:
        """Makes the pairs. pairs_of(batch): times a batch on both sides; seconds: a call takes on (the baseline's, this) side.

        Raises:
            Failed: an output was wrong.
        """
        started = self.turns.timer.monotonic()
        at_once = min(DRAWN_AT_ONCE, self.turns.exchange.stage.layout.slots)
        while self._wants_more(self.turns.timer.monotonic() - started):
            self.probes.hurry = len(self.pairs) >= PAIRS
            self.turns.draw(at_once)
            timed = []
            for place in range(at_once):
                batch = Batch(place, 1)
                if drawn := self.probes.draw(1):
                    self.probes.run(drawn, batch, seconds[drawn.side is self.turns.mine], place)
                    continue
                self.pairs += pairs_of(batch)
                timed.append(place)
            self.probes.compare()
            self.turns.compare(timed[:1], timed)
            self._time_starts(timed)

    def _wants_more(self, elapsed: float) -> bool:
        if len(self.pairs) >= LEAST_PAIRS and elapsed > SECONDS:
            return False
        return len(self.pairs) < PAIRS or self.probes.open(1)

    def _time_starts(self, places: Sequence[int]) -> None:
        """A no-op batch per place, in turn in the worlds of the baseline's side. They overwrite outputs, which were compared."""
        base = self.turns.base
        for place in places:
            number = place % len(base.worlds)
            us = self.turns.timed(base, base.worlds[number], Batch(place, 1, noop=True), place) * 1e6
            self.starts.setdefault(number, []).append(us)
        self.turns.stop_all()
        self.turns.exchange.discard_outputs()

    def speedup(self) -> Interval:
        """Of single calls, their start taken off, with its 99 % interval."""
        base_us, mine_us, start_us, offset_us = self._resampled()
        least = LEAST_SHARE * np.maximum(mine_us, TINY_US)
        ratios = np.maximum(base_us - start_us, LEAST_SHARE * base_us) / np.maximum(
            mine_us - start_us - offset_us, least
        )
        low, middle, high = np.quantile(ratios, [TAIL, 0.5, 1 - TAIL])
        return Interval(float(middle), float(low), float(high))

    def saved_us(self) -> float:
        """Microseconds that this side saves in a single call, at the most (99.5 %)."""
        base_us, mine_us, _, offset_us = self._resampled()
        return float(np.quantile(base_us - mine_us + offset_us, 1 - TAIL))

    def _resampled(self) -> tuple[Floats, Floats, Floats, Floats]:
        """[resamples] medians of the baseline's, this side's and no-op batches, and how much sooner this side's world starts."""
        chance = np.random.default_rng(0)
        base, mine = (
            np.array([getattr(pair, name) for pair in self.pairs]) for name in ("baseline_us", "contender_us")
        )
        starts = np.array([us for found in self.starts.values() for us in found])
        some = chance.integers(0, len(base), (RESAMPLES, len(base)))
        start = np.median(starts[chance.integers(0, len(starts), (RESAMPLES, len(starts)))], axis=1)
        spread = np.std([median(found) for found in self.starts.values()]) if len(self.starts) > 1 else 0.0
        offset = chance.normal(0.0, max(LEAST_OFFSET_US, float(spread)), RESAMPLES)
        return np.median(base[some], axis=1), np.median(mine[some], axis=1), start, offset

    def contradict(self, call: Interval, baseline_us: float, proven: bool) -> bool:
        """Whether single calls do not bear out a lead of batches of many calls.

        baseline_us: a call of the baseline in such batches. proven: inputs were replaced within batches of this run; otherwise
        single calls must show the lead, too.
        """
        if call.low < 1:  # the rival leads
            single = self.speedup()
            return call.high * TOLERANCE < single.low or (not proven and single.high >= 1)
        single = self.speedup()
        least_saved = baseline_us * (1 - 1 / call.low)
        return (
            call.low > TOLERANCE * single.high
            or self.saved_us() < LEAST_SAVED * least_saved
            or (not proven and single.low <= 1)
        )
