"""Is it faster? Medians over paired rounds with a bootstrap interval, widened by what identical code differs by."""

from sandbox.events import Interval

RESAMPLES = 1000
CONFIDENCE = 0.95
NOISY_WIDTH = 0.5
FEW = 7
"""Fewer rounds than this are too few to resample."""
MIN_ROUNDS = {"cpu": 11, "cuda": 7}
"""Fewer rounds than this make no interval worth stopping at. Behind the gate rounds differ by a thousandth."""

MARGIN = {"cpu": 0.06, "cuda": 0.012}
"""Two worlds running identical code differ by a constant that more rounds do not average away (placement of buffers and
communicators; on CPU also of the file mappings). Differences inside it are even. Measured: BENCHMARKS.md."""
MOST_LAUNCHES = 5.0


def device_margin(margin: float, call_us: float, device_us: float) -> float:
    """The margin for device time: identical code differs the more, the more of a call is launches of small kernels.

    Where the code and the flags of a process lie changes such a kernel by up to a tenth, a long one by a thousandth. How much
    longer a call takes than its work on the device tells which of the two it is (measured: BENCHMARKS.md).
    """
    return margin * min(max(call_us / max(device_us, 1e-9), 1.0), MOST_LAUNCHES)


def speedup(
    baseline: list[float],
    contender: list[float],
    margin: float,
    waits: tuple[float, float] = (0.0, 0.0),
    seed: int = 0,
) -> Interval:
    """Ratio of medians baseline/contender over paired rounds, with its interval.

    Rounds are resampled in pairs, so that drift common to both worlds cancels.

    Args:
        baseline, contender: microseconds per call, one entry a round, same length of 1 or more.
        margin: relative systematic difference between worlds, added on both sides.
        waits: share of each side's time that its ranks spent waiting for a core. What one side waited more than the other
            says nothing about the code, so the interval allows for all of it.
    """
    import numpy as np  # a tenth of a second that the app, which only reads intervals, need not pay

    b, c = np.asarray(baseline), np.asarray(contender)
    ratio = float(np.median(b) / np.median(c))
    least = (1 - margin) * (1 - max(0.0, waits[0] - waits[1]))
    most = (1 + margin) / (1 - max(0.0, waits[1] - waits[0]))
    if len(b) < FEW:  # too few to resample: everything between the extremes
        # Of three rounds of identical code all of one side beat all of the other's in one run of ten, of five in one of 126.
        spread = 2.0 if len(b) < 3 else 1.5 if len(b) < 5 else 1.0
        low, high = b.min() / c.max() / spread, b.max() / c.min() * spread
        return Interval(ratio, float(low) * least, float(high) * most)
    pick = np.random.default_rng(seed).integers(0, len(b), (RESAMPLES, len(b)))
    ratios = np.median(b[pick], axis=1) / np.median(c[pick], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return Interval(ratio, float(low) * least, float(high) * most)


def outcome(interval: Interval) -> str:
    """faster, slower, even, or too noisy to say."""
    if interval.low > 1.0:
        return "faster"
    if interval.high < 1.0:
        return "slower"
    return "too noisy" if interval.high - interval.low > NOISY_WIDTH * interval.median else "even"


def settled(interval: Interval, margin: float) -> bool:
    """Whether the rounds' own share of the interval is below 3 %: more rounds would not tell more."""
    return (interval.high - interval.low) / max(interval.median, 1e-9) < 0.03 + 2 * margin
