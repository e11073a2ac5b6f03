"""Estimators of a speedup's interval from pairs: a former one, those of textbooks, and the one that is used."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sandbox.timing import random_effects
from sandbox.timing.interval import TAIL
from sandbox.timing.random_effects import Fit, student

Floats = NDArray[np.floating[Any]]
Ends = tuple[Floats, Floats, Floats]
"""(estimate, low, high) of the log speedup, [runs] each."""
RESAMPLES = 200


class MeasuredPairs(NamedTuple):
    """Log times [runs, pairs] of the references and the contender, and which side ran first; references [pairs] by index."""

    baseline: Floats
    contender: Floats
    first: NDArray[np.bool_]
    references: NDArray[np.int64]
    clock: str

    @property
    def ratios(self) -> Floats:
        """Log speedup of each pair."""
        return self.baseline - self.contender


Estimator = Callable[[MeasuredPairs], Ends]


def _bootstrap(measured: MeasuredPairs, level: float, share: float, margin: float) -> Ends:
    """Ratio of quantiles, with pairs resampled."""
    random = np.random.default_rng(0)
    runs, pairs = measured.ratios.shape
    middle = np.quantile(measured.baseline, share, axis=1) - np.quantile(measured.contender, share, axis=1)
    lows, highs = np.empty(runs), np.empty(runs)
    at = int(share * pairs)
    for start in range(0, runs, 50):
        part = slice(start, start + 50)
        pick = random.integers(0, pairs, (RESAMPLES, pairs))
        sides = [
            np.partition(side[part][:, pick], at, axis=2)[:, :, at] for side in (measured.baseline, measured.contender)
        ]
        lows[part], highs[part] = np.quantile(sides[0] - sides[1], [(1 - level) / 2, (1 + level) / 2], axis=1)
    return middle, lows + math.log1p(-margin), highs + math.log1p(margin)


def constant_margin(measured: MeasuredPairs) -> Ends:
    """Ratio of medians, bootstrap 95 %, and a margin of 6 % (calls) or 1.2 % (device)."""
    return _bootstrap(measured, 0.95, 0.5, 0.06 if measured.clock == "call" else 0.012)


def medians(measured: MeasuredPairs) -> Ends:
    """Ratio of medians, bootstrap 99 %."""
    return _bootstrap(measured, 0.99, 0.5, 0.0)


def low_quartiles(measured: MeasuredPairs) -> Ends:
    """Ratio of lower quartiles, bootstrap 99 %."""
    return _bootstrap(measured, 0.99, 0.25, 0.0)


def _t(middle: Floats, error: Floats, freedom: float) -> Ends:
    reach = student(TAIL, freedom) * error
    return middle, middle - reach, middle + reach


def mean(measured: MeasuredPairs) -> Ends:
    """Mean of log ratios, t."""
    ratios = measured.ratios
    return _t(ratios.mean(axis=1), ratios.std(axis=1, ddof=1) / math.sqrt(ratios.shape[1]), ratios.shape[1] - 1)


def trimmed(measured: MeasuredPairs) -> Ends:
    """Mean of log ratios without a fifth at both ends, winsorized variance, t."""
    ratios = np.sort(measured.ratios, axis=1)
    count = ratios.shape[1]
    cut = int(0.2 * count)
    kept = ratios[:, cut : count - cut]
    winsorized = np.clip(ratios, kept[:, :1], kept[:, -1:]).std(axis=1, ddof=1)
    return _t(kept.mean(axis=1), winsorized / (1 - 2 * cut / count) / math.sqrt(count), kept.shape[1] - 1)


def hodges_lehmann(measured: MeasuredPairs) -> Ends:
    """Median of the means of two log ratios, interval of Wilcoxon's signed ranks."""
    ratios = measured.ratios
    count = ratios.shape[1]
    i, j = np.triu_indices(count)
    walsh = np.sort((ratios[:, i] + ratios[:, j]) / 2, axis=1)
    total = walsh.shape[1]
    reach = student(TAIL, math.inf) * math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    cut = max(int(total / 2 - reach), 0)
    return np.median(walsh, axis=1), walsh[:, cut], walsh[:, total - 1 - cut]


def _fit(measured: MeasuredPairs) -> Fit:
    return random_effects.fit(measured.ratios, measured.references, measured.first)


def huber(measured: MeasuredPairs) -> Ends:
    """Huber's M-estimate, order effect and correlation allowed for, t; worlds are taken to be equal."""
    found = _fit(measured)
    worlds = found.locations.shape[1]
    return _t(found.locations.mean(axis=1), np.sqrt(found.variances.sum(axis=1)) / worlds, found.freedom)


def reference_t(measured: MeasuredPairs) -> Ends:
    """Huber's M-estimate by reference; t over references, with the contender as one more of them."""
    found = _fit(measured)
    worlds = found.locations.shape[1]
    if worlds == 1:
        return huber(measured)
    spread = found.locations.std(axis=1, ddof=1)
    return _t(found.locations.mean(axis=1), spread * math.sqrt(1 + 1 / worlds), worlds - 1)


def satterthwaite(measured: MeasuredPairs) -> Ends:
    """Huber's M-estimate by reference; moment estimate of the spread of worlds, Satterthwaite's degrees of freedom."""
    found = _fit(measured)
    worlds = found.locations.shape[1]
    if worlds == 1:
        return huber(measured)
    noise = found.variances.mean(axis=1) / worlds
    between = np.maximum(found.locations.var(axis=1, ddof=1) - worlds * noise, 0.0) * (1 + 1 / worlds)
    total = noise + between
    freedom = total**2 / (noise**2 / found.freedom + between**2 / (worlds - 1) + 1e-30)
    middle = found.locations.mean(axis=1)
    reach = np.array([student(TAIL, max(f, 1.0)) for f in freedom]) * np.sqrt(total)
    return middle, middle - reach, middle + reach


def posterior(measured: MeasuredPairs) -> Ends:
    """Huber's M-estimate by reference; the spread of worlds integrated over its posterior. This one is used."""
    found = _fit(measured)
    prior = random_effects.prior_for(measured.clock, found.locations.shape[1])
    return random_effects.predict(found, prior, 0.0, TAIL)


USED = "Huber, posterior (used)"
ESTIMATORS: dict[str, Estimator] = {
    "medians, margin (before)": constant_margin,
    "medians": medians,
    "low quartiles": low_quartiles,
    "mean": mean,
    "trimmed mean": trimmed,
    "Hodges-Lehmann": hodges_lehmann,
    "Huber": huber,
    "Huber, t of worlds": reference_t,
    "Huber, Satterthwaite": satterthwaite,
    USED: posterior,
}
