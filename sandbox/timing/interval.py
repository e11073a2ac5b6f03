"""The speedup of a run with its interval, from pairs of neighbouring batches of the contender and of reference worlds.

The model of one pair: log(baseline time / contender time) = log(speedup) + offset of the reference world - offset of the
contender's world + half the effect of the order + noise. Worlds that run the same code differ by offsets that more pairs do
not average away. The references of this run and of earlier runs show how large such offsets are, and the interval allows for
the contender's own. It may be looked at at any time.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from sandbox.protocol.events import Interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ends = NDArray[np.floating[Any]]

FEWEST = 6
"""Fewer undisturbed batches of the contender give no claim."""
HALF_WIDTHS = 1.55
"""A difference of this many half widths is detected in 95 % of measurements: (3 + z(0.95)) / 3."""
NOISY_PERCENT = 50.0
"""A measurement with a larger smallest detectable difference is too noisy for "even"."""
WIDEST = 25.0
"""An interval whose ends differ by more than this factor gives no claim."""
LEAST_RUN = 1e-3
"""Least share of its time in which a side is assumed to have had its cores."""
OTHER_PROGRAMS = "other programs use the cores"
WAITED = OTHER_PROGRAMS + " (the baseline's ranks waited for one {:.0f} % of the time, the kernel's {:.0f} %)"
SINGLE_WAITED = OTHER_PROGRAMS + ", and a single call waits for one as long as it lasts"


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
    cores: int = 0
    """A number for the cores that first threads were pinned to."""
    at_s: float = 0.0
    """When it ended, in seconds from the start of timing."""

    @property
    def log_ratio(self) -> float:
        """The natural logarithm of the reference's time over the contender's."""
        return math.log(self.baseline_us) - math.log(self.contender_us)


ReferenceBatch = tuple[int, float, int]
"""A batch of a reference world: (its index, microseconds per call, `Pair.cores`)."""

Estimate = tuple[Interval | None, str]
"""(speedup, why nothing can be claimed): None and a reason, or an interval and nothing."""


def speedup(
    pairs: Sequence[Pair],
    history: Sequence[float] = (),
    overhead_error: float = 0.0,
    waited: tuple[float, float] = (0.0, 0.0),
    beside: Sequence[ReferenceBatch] = (),
) -> Estimate:
    """Baseline time over contender time with its interval; deterministic, always finite.

    Args:
        pairs: in the order they were measured, 0 or more. Pairs with a time that is not positive and finite are left out.
        history: log mass of the machine's typical tau (`random_effects.learn`); empty: not known, so the interval is wider.
        overhead_error: standard error of the log ratio from the uncertainty of the overhead.
        waited: shares of their time for which (the baseline's, the contender's) ranks waited for a core. Without these waits a
            side might have been quicker by so much, and the interval allows for that.
        beside: batches of references that are no part of the pairs. They show how much worlds differ.
    """
    sound = [pair for pair in pairs if is_sound(pair)]
    if (count := turns_of(sound)) < FEWEST:
        return None, f"{count} pair{'s' * (count != 1)} of batches, {FEWEST} are needed"
    # importing numpy takes 0.1 s, which readers of intervals do not need
    import numpy as np

    from sandbox.timing import random_effects

    kept, chance = random_effects.undisturbed(
        _logs(pair.baseline_us for pair in sound), _logs(pair.contender_us for pair in sound), count
    )
    if (left := turns_of([pair for pair, keep in zip(sound, kept[0], strict=True) if keep])) < FEWEST:
        why = f"other work disturbed {count - left} of {count} pairs of batches, {FEWEST} others are needed"
        return _estimate(*random_effects.by_ranks(np.array([_ratios_of_turns(sound)])), why, waited)
    found = random_effects.fit(
        np.array([[pair.log_ratio for pair in sound]]),
        np.array([pair.reference for pair in sound], np.int64),
        np.array([[pair.baseline_first for pair in sound]], np.bool_),
        np.array(_turns(sound), np.int64),
        kept,
        chance,
    )
    mass = np.array([history or no_history()])
    why = "the times of neighbouring batches differ too much"
    return _estimate(*random_effects.predict(found, mass, overhead_error, _evidence(beside)), why, waited)


def _estimate(middle: "Ends", low: "Ends", high: "Ends", why: str, waited: tuple[float, float]) -> Estimate:
    """What one run's natural logarithms say. why: the reason if they are too far apart. waited: as for `speedup`.

    If the pairs are near enough to each other, waits widen the interval to any width that still shows who is faster.
    """
    ends = [float(end[0]) for end in (middle, low, high)]
    near = ends[2] - ends[1] <= math.log(WIDEST)
    if max(waited) > 0:
        ends[1] += math.log(max(1 - waited[0], LEAST_RUN))
        ends[2] -= math.log(max(1 - waited[1], LEAST_RUN))
        why = WAITED.format(*(100 * min(share, 1.0) for share in waited))
    shows = ends[1] > 0 or ends[2] < 0 or ends[2] - ends[1] <= math.log(WIDEST)
    if not (near and shows):
        return None, why
    return Interval(math.exp(ends[0]), math.exp(min(ends[:2])), math.exp(max(ends[0], ends[2]))), ""


def _ratios_of_turns(pairs: Sequence[Pair]) -> list[float]:
    """The mean log ratio of each of the contender's batches."""
    found: dict[int, list[float]] = {}
    for turn, pair in zip(_turns(pairs), pairs, strict=True):
        found.setdefault(turn, []).append(pair.log_ratio)
    return [sum(ratios) / len(ratios) for ratios in found.values()]


def learned(batches: Sequence[ReferenceBatch], history: Sequence[float] = ()) -> list[float]:
    """The machine's history after a run in which references ran these batches, in this order.

    Empty if they show nothing. history: as for `speedup`.
    """
    import numpy as np

    from sandbox.timing import random_effects

    if (evidence := _evidence(batches)) is None:
        return []
    return [float(value) for value in random_effects.learn(np.array([history or no_history()]), evidence)[0]]


def no_history(offsets_class: str = "") -> list[float]:
    """The history of a machine before its first run. offsets_class: as `Clock.offsets_class`."""
    from sandbox.timing import random_effects

    return [float(value) for value in random_effects.no_history(1, offsets_class)[0]]


def _evidence(batches: Sequence[ReferenceBatch]) -> "NDArray[np.floating[Any]] | None":
    """[1, grid] log likelihood of tau from batches of references in the order they were measured; None if there are too few."""
    if len(batches) < FEWEST:
        return None
    import numpy as np

    from sandbox.timing import random_effects

    references, times, cores = zip(*batches, strict=True)
    worlds, places = (np.array(each, np.int64) for each in (references, cores))
    return random_effects.reference_evidence(_logs(times), worlds, places)


def _logs(times: Iterable[float]) -> "NDArray[np.float64]":
    """[1, batches] natural logarithms."""
    import numpy as np

    logs: NDArray[np.float64] = np.log(np.array([list(times)]))
    return logs


def is_sound(pair: Pair) -> bool:
    """Whether both times are positive and finite."""
    return all(math.isfinite(us) and us > 0 for us in (pair.baseline_us, pair.contender_us))


def turns_of(pairs: Sequence[Pair]) -> int:
    """Number of the contender's batches in these pairs."""
    return len(set(_turns(pairs)))


def _turns(pairs: Sequence[Pair]) -> list[int]:
    """The turn of each pair, a negative number for one that shares the contender's batch with no other."""
    return [-1 - place if pair.turn is None else pair.turn for place, pair in enumerate(pairs)]


def half_width(interval: Interval) -> float:
    """Half the width of the interval's natural logarithm: 0.03 for [0.97, 1.03]."""
    return math.log(max(interval.high, 1e-9) / max(interval.low, 1e-9)) / 2


def detectable_percent(interval: Interval) -> float:
    """The smallest detectable difference in percent: this measurement claims it with a probability of about 95 %."""
    return 100 * math.expm1(min(HALF_WIDTHS * half_width(interval), 20.0))


def outcome(interval: Interval) -> str:
    """The outcome by one clock: "faster", "slower", "even" or "too noisy"."""
    if interval.low > 1.0:
        return "faster"
    if interval.high < 1.0:
        return "slower"
    return "too noisy" if detectable_percent(interval) > NOISY_PERCENT else "even"
