"""A second witness for a difference in speed: batches of one call, which leave a kernel nothing to do ahead.

A batch of many calls shows how quickly calls follow each other. A kernel that does the work of later calls in an earlier one
is far quicker there than in single calls. A single call takes longer by what starting a batch takes, which no-op batches of the
reference worlds show.
"""

from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

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
TOLERANCE, TOLERANCE_UNPROVEN = 1.5, 1.2
"""So far may a speedup go beyond that of single calls: calls that follow each other overlap. Less where no inputs could be
replaced within batches."""


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
                self._time_start(place)
                timed.append(place)
            self.probes.compare()
            self.turns.compare(timed[:1], timed)

    def _wants_more(self, elapsed: float) -> bool:
        if len(self.pairs) >= LEAST_PAIRS and elapsed > SECONDS:
            return False
        return len(self.pairs) < PAIRS or self.probes.open(1)

    def _time_start(self, place: int) -> None:
        """A no-op batch of a world on the baseline's side, into a slot that was taken already."""
        base = self.turns.base
        number = len(self.pairs) % len(base.worlds)
        batch = Batch(place, 1, noop=True)
        us = self.turns.timed(base, base.worlds[number], batch, place) * 1e6
        self.starts.setdefault(number, []).append(us)

    def speedup(self) -> Interval:
        """Of single calls, their start taken off, with its 99 % interval: by resampling, and by how far worlds' starts differ."""
        chance = np.random.default_rng(0)
        base, mine = (
            np.array([getattr(pair, name) for pair in self.pairs]) for name in ("baseline_us", "contender_us")
        )
        starts = np.array([us for found in self.starts.values() for us in found])
        some = chance.integers(0, len(base), (RESAMPLES, len(base)))
        start = np.median(starts[chance.integers(0, len(starts), (RESAMPLES, len(starts)))], axis=1)
        spread = np.std([median(found) for found in self.starts.values()]) if len(self.starts) > 1 else 0.0
        offset = chance.normal(0.0, max(LEAST_OFFSET_US, float(spread)), RESAMPLES)
        base_us, mine_us = np.median(base[some], axis=1), np.median(mine[some], axis=1)
        least = LEAST_SHARE * np.maximum(mine_us, TINY_US)
        ratios = np.maximum(base_us - start, LEAST_SHARE * base_us) / np.maximum(
            mine_us - start - offset, least
        )
        low, middle, high = np.quantile(ratios, [TAIL, 0.5, 1 - TAIL])
        return Interval(float(middle), float(low), float(high))

    def contradict(self, call: Interval, proven: bool) -> bool:
        """Whether a speedup of many calls goes far beyond that of single ones. proven: inputs were replaced within batches."""
        single = self.speedup()
        tolerance = TOLERANCE if proven else TOLERANCE_UNPROVEN
        return call.low > tolerance * single.high or call.high * tolerance < single.low
