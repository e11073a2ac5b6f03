"""The speedup of a run with its interval, from pairs of neighbouring batches of the contender and of reference worlds.

The model of one pair: log(baseline time / contender time) = log(speedup) + offset of the reference world - offset of the
contender's world + half the effect of the order + noise. Worlds that run the same code differ by offsets that more pairs do
not average away. The references show how large such offsets are, and the interval allows for the contender's own.
BENCHMARKS.md ("What the clock can tell") has the simulation behind this choice.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from sandbox.protocol.events import Interval

if TYPE_CHECKING:
    from sandbox.timing.random_effects import Fit

TAIL = 0.005
"""Probability beyond either end of the interval: identical code is called faster or slower in at most 1 % of runs."""
FEWEST = 6
"""Fewer batches of the contender give no claim."""
HALF_WIDTHS = 1.64
"""A difference of this many half widths is detected in 95 % of measurements: (z(0.995) + z(0.95)) / z(0.995)."""
NOISY_PERCENT = 50.0
"""A measurement with a larger smallest detectable difference is too noisy for "even"."""
WIDEST = 20.0
"""Limit for the natural logarithms of an interval's ends."""


class Pair(msgspec.Struct, frozen=True):
    """Two neighbouring batches of the same number of calls, one of a reference world and one of the contender's.

    Both times are as measured, with the overhead, in `Clock.raw` and for single calls. In `Clock.pairs` the overhead is
    subtracted.
    """

    reference: int
    """Index of the reference world."""
    baseline_us: float
    """Microseconds per call of the reference world."""
    contender_us: float
    """Microseconds per call of the contender's world."""
    baseline_first: bool
    """The reference world's batch ran first."""
    calls: int = 1
    round: int = 0
    """Pairs of one round share their inputs."""
    turn: int | None = None
    """Pairs of one turn share the contender's batch; None: the pair shares it with no other."""

    @property
    def log_ratio(self) -> float:
        """The natural logarithm of the reference's time over the contender's."""
        return math.log(self.baseline_us) - math.log(self.contender_us)


def speedup(pairs: Sequence[Pair], clock: str = "call", overhead_error: float = 0.0) -> Interval:
    """Baseline time over contender time with its 99 % interval; deterministic, always finite.

    One reference world alone does not show how much worlds with the same code differ. The interval then allows for offsets of
    up to 10 %, so that no difference below 20 % is claimed.

    Args:
        pairs: in the order they were measured, 0 or more. Pairs with a time that is not positive and finite are left out.
        clock: "call" or "device".
        overhead_error: standard error of the log ratio from the uncertainty of the overhead.
    """
    sound = [pair for pair in pairs if is_sound(pair)]
    if turns_of(sound) < FEWEST:
        return _no_claim([pair.log_ratio for pair in sound])
    # importing numpy takes 0.1 s, which readers of intervals do not need
    from sandbox.timing import random_effects

    prior = random_effects.prior_for(clock, len({pair.reference for pair in sound}))
    ends = random_effects.predict(_fit(sound), prior, overhead_error, TAIL)
    return _interval(*(float(end[0]) for end in ends))


def _fit(pairs: Sequence[Pair]) -> "Fit":
    """The fit of one run's pairs, whose times are positive and finite."""
    import numpy as np

    from sandbox.timing import random_effects

    keys = [(place, None) if pair.turn is None else (None, pair.turn) for place, pair in enumerate(pairs)]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return random_effects.fit(
        np.array([[pair.log_ratio for pair in pairs]]),
        np.array([pair.reference for pair in pairs], np.int64),
        np.array([[pair.baseline_first for pair in pairs]], np.bool_),
        np.array([numbers[key] for key in keys], np.int64),
    )


def is_sound(pair: Pair) -> bool:
    """Whether both times are positive and finite."""
    return all(math.isfinite(us) and us > 0 for us in (pair.baseline_us, pair.contender_us))


def turns_of(pairs: Sequence[Pair]) -> int:
    """Number of the contender's batches in these pairs."""
    return sum(pair.turn is None for pair in pairs) + len({pair.turn for pair in pairs} - {None})


def _no_claim(ratios: list[float]) -> Interval:
    """An interval around 1 that is too wide for any claim."""
    spread = math.log(4.0)
    ordered = sorted(ratios) or [0.0]
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return _interval(middle, min([0.0, *ratios]) - spread, max([0.0, *ratios]) + spread)


def _interval(middle: float, low: float, high: float) -> Interval:
    """The interval of these natural logarithms."""
    ends = (middle, min(low, middle), max(high, middle))
    return Interval(*(math.exp(min(max(end, -WIDEST), WIDEST)) for end in ends))


def half_width(interval: Interval) -> float:
    """Half the width of the interval's natural logarithm: 0.03 for [0.97, 1.03]."""
    return math.log(max(interval.high, 1e-9) / max(interval.low, 1e-9)) / 2


def detectable_percent(interval: Interval) -> float:
    """The smallest detectable difference in percent: this measurement claims it with a probability of about 95 %."""
    return 100 * math.expm1(min(HALF_WIDTHS * half_width(interval), WIDEST))


def outcome(interval: Interval) -> str:
    """The outcome by one clock: "faster", "slower", "even" or "too noisy"."""
    if interval.low > 1.0:
        return "faster"
    if interval.high < 1.0:
        return "slower"
    return "too noisy" if detectable_percent(interval) > NOISY_PERCENT else "even"
