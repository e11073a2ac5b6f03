"""Is it faster? Medians over paired rounds with a bootstrap interval, widened by what identical code differs by."""

import numpy as np
import numpy.typing as npt

from sandbox.events import Interval

RESAMPLES = 1000
CONFIDENCE = 0.95
NOISY_WIDTH = 0.5
MIN_ROUNDS = 11
"""Fewer rounds than this make no interval worth stopping at."""

MARGIN = {"cpu": 0.03, "cuda": 0.012}
"""Two worlds running identical code differ by a constant that more rounds do not average away (placement of buffers and
communicators; on CPU also of the file mappings). Differences inside it are even. Measured: BENCHMARKS.md."""


def speedup(baseline: list[float], contender: list[float], margin: float, seed: int = 0) -> Interval:
    """Ratio of medians baseline/contender over paired rounds, with its interval.

    Rounds are resampled in pairs, so that drift common to both worlds cancels.

    Args:
        baseline, contender: microseconds per call, one entry a round, same length of 1 or more.
        margin: relative systematic difference between worlds, added on both sides.
    """
    b, c = np.asarray(baseline), np.asarray(contender)
    ratio = float(np.median(b) / np.median(c))
    if len(b) < 3:
        return Interval(ratio, ratio / 2, ratio * 2)  # too few to resample: say so with a wide interval
    pick = np.random.default_rng(seed).integers(0, len(b), (RESAMPLES, len(b)))
    ratios: npt.NDArray[np.float64] = np.median(b[pick], axis=1) / np.median(c[pick], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return Interval(ratio, float(low) * (1 - margin), float(high) * (1 + margin))


def outcome(interval: Interval) -> str:
    """faster, slower, even, or too noisy to say."""
    if interval.low > 1.0:
        return "faster"
    if interval.high < 1.0:
        return "slower"
    return "too noisy" if interval.high - interval.low > NOISY_WIDTH * interval.median else "even"


def settled(interval: Interval, margin: float) -> bool:
    """Whether the rounds' own share of the interval is below 3 %: more rounds would not tell more."""
    own = (interval.high / (1 + margin) - interval.low / (1 - margin)) / max(interval.median, 1e-9)
    return own < 0.03
