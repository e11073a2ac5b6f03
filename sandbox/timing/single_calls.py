"""A second witness for a difference in speed: batches of one call, which leave a kernel nothing to do ahead.

A batch of many calls shows how quickly calls follow each other. A kernel that does the work of later calls in an earlier one
saves time there, and none in single calls. What starting a batch takes is in both sides' single calls, so their difference
shows what a call saves. The baseline does nothing ahead.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sandbox.protocol.events import Interval
from sandbox.timing.interval import TAIL, Pair
from sandbox.timing.probes import Probes
from sandbox.timing.turns import Batch, Turns

PAIRS, DRAWN_AT_ONCE = 24, 24
"""Pairs of single calls, and iterations that are drawn for them at once."""
SECONDS, LEAST_PAIRS = 8.0, 8
"""Slow calls: no pair is begun after so many seconds, once there are so many."""
RESAMPLES = 400
LEAST_OFFSET_US = 2.0
"""Worlds differ by this in how soon they start (standard deviation), or by more where the references do."""
LEAST_SAVED = 0.5
"""Of the time that a call saves in batches of many calls, a single call saves at least this share: calls that follow each other
may overlap."""
SLOWED_SHARE = 0.7
"""Of the baseline's time in batches of many calls: where its single calls take less, other work slowed the batches."""
LEAST_SHARE = 0.02
"""Of the baseline's time that a single call takes at the least, for its speedup."""

Floats = NDArray[np.floating[Any]]


class SingleCalls:
    """The single calls of one run."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.probes = Probes(turns)
        self.pairs: list[Pair] = []

    def measure(self, pairs_of: Callable[[Batch], list[Pair]], seconds: Sequence[float]) -> None:
        """Makes the pairs. pairs_of(batch): times a batch on both sides; seconds: a call takes on (the baseline's, this) side.

        Raises:
            Failed: an output was wrong.
        """
        started = self.turns.timer.monotonic()
        most = min(DRAWN_AT_ONCE, self.turns.exchange.stage.layout.slots)
        while self._wants_more(self.turns.timer.monotonic() - started):
            self.probes.hurry = len(self.pairs) >= PAIRS
            at_once = max(1, min(most, PAIRS - len(self.pairs) + self.probes.left(1)))
            self.turns.draw(at_once)
            timed: list[int] = []
            for place in range(at_once):
                batch = Batch(place, 1)
                if drawn := self.probes.draw(1):
                    self.probes.run(drawn, batch, seconds[drawn.side is self.turns.mine], place)
                    continue
                self.pairs += pairs_of(batch)
                timed.append(place)
            self.probes.compare()
            self.turns.compare(timed[:1], timed)

    def _wants_more(self, elapsed: float) -> bool:
        if len(self.pairs) >= LEAST_PAIRS and elapsed > SECONDS:
            return False
        return len(self.pairs) < PAIRS or self.probes.open(1)

    def slowed(self, baseline_us: float) -> float | None:
        """Microseconds of the baseline's single calls, if they are far below its calls in batches of many calls.

        Only other work on the machine makes them so, as a single call's time has its start, too. baseline_us: in such batches.
        """
        alone = float(np.median([pair.baseline_us for pair in self.pairs]))
        return alone if alone < SLOWED_SHARE * baseline_us else None

    def saved_us(self) -> Floats:
        """[resamples] microseconds that this side's single call saves: the medians' difference, and how worlds' starts differ."""
        chance = np.random.default_rng(0)
        base, mine = (
            np.array([getattr(pair, name) for pair in self.pairs]) for name in ("baseline_us", "contender_us")
        )
        references = np.array([pair.reference for pair in self.pairs])
        starts = [float(np.median(base[references == number])) for number in np.unique(references)]
        offset = chance.normal(0.0, max(LEAST_OFFSET_US, float(np.std(starts))), RESAMPLES)
        some = chance.integers(0, len(base), (RESAMPLES, len(base)))
        saved: Floats = np.median(base[some], axis=1) - np.median(mine[some], axis=1) + offset
        return saved

    def speedup(self, baseline_us: float) -> Interval:
        """Of single calls, with its 99 % interval. baseline_us: a call of the baseline without its start."""
        saved = np.quantile(self.saved_us(), [TAIL, 0.5, 1 - TAIL])
        low, middle, high = baseline_us / np.maximum(baseline_us - saved, LEAST_SHARE * baseline_us)
        return Interval(float(middle), float(low), float(high))

    def contradict(self, call: Interval, baseline_us: float, proven: bool) -> bool:
        """Whether single calls do not bear out a lead of batches of many calls.

        baseline_us: a call of the baseline in such batches. proven: inputs were replaced within batches of this run; otherwise
        single calls must show the lead themselves.
        """
        least, most = np.quantile(self.saved_us(), [TAIL, 1 - TAIL])
        if call.low > 1:
            return bool(most < LEAST_SAVED * baseline_us * (1 - 1 / call.low) or (not proven and least <= 0))
        rivals = baseline_us * (1 / call.high - 1)  # that the rival saves, at the least
        return bool(-least < LEAST_SAVED * rivals or (not proven and most >= 0))
