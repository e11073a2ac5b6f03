"""A robust random-effects model of log ratios: the mean over reference worlds, and how much worlds differ.

Log ratios are fitted with Huber's M-estimator: one location per reference world and the effect of the order. The spread of
the locations beyond noise is the standard deviation of world offsets. It is integrated over its posterior distribution, because
three or four worlds do not determine it well.

All arrays have a leading axis of runs: a measurement is one run, the simulation evaluates thousands at once.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

HUBER = 1.345
"""Residuals beyond this many standard deviations get less weight (95 % efficient for normal noise)."""
ITERATIONS, SCALE_ITERATIONS = 16, 5
ORDER_FROM = 10
"""With fewer pairs the effect of the order is not fitted."""
LEAST_OFFSET = 2e-4
"""World offsets (standard deviation) are at least this."""
POINTS = 32
MOST_CORRELATION = 0.8
TINY = 1e-12


@dataclass(frozen=True)
class Prior:
    """The prior of the standard deviation of world offsets: uniform in its logarithm."""

    most: float
    """Its upper limit."""
    caution: float = 0.0
    """Power that makes values below the noise of a location less likely, because the noise could hide larger ones."""

    @property
    def grid(self) -> Floats:
        """[grid] standard deviations."""
        return np.geomspace(LEAST_OFFSET, self.most, POINTS)

    def log_mass(self, found: "Fit") -> Floats:
        """[runs, grid] logarithm of the prior without its constant."""
        noise = found.variances.mean(axis=1, keepdims=True)
        mass: Floats = self.caution * np.log(self.grid**2 / (self.grid**2 + noise))
        return mass


PRIORS = {"call": Prior(0.08, caution=0.15), "device": Prior(0.30, caution=0.5)}
"""Offsets were measured as 0 to 2 % of end-to-end time and 0.1 % of device time, up to 8 % for tiny kernels. The priors were
chosen by simulation (BENCHMARKS.md). Caution makes intervals of end-to-end time wider; device time has too little noise to
suffer."""
ALONE = Prior(0.10)
"""For one reference world."""


@dataclass(frozen=True)
class Fit:
    """A fit: the log ratios by reference world, with noise averaged."""

    locations: Floats
    """[runs, references] log ratio of each reference world to the contender's."""
    variances: Floats
    """[runs, references] variances of the locations from noise alone."""
    freedom: float
    """Degrees of freedom of the noise variance."""
    common: Floats
    """[runs] variance that all locations share, from the contender's batches that several pairs share."""


def prior_for(clock: str, references: int) -> Prior:
    """The prior for a clock, "call" or "device", and a number of reference worlds."""
    return ALONE if references == 1 else PRIORS[clock]


def fit(
    ratios: Floats, references: NDArray[np.int64], first: NDArray[np.bool_], turns: NDArray[np.int64] | None = None
) -> Fit:
    """Fits log ratios in the order they were measured.

    Args:
        ratios: [runs, pairs] log(baseline time / contender time), finite.
        references: [pairs] index of the reference world, the same for all runs.
        first: [runs, pairs] whether the reference world ran first.
        turns: [pairs] index of the contender's batch, which pairs may share; None: each pair has its own.
    """
    worlds, column = np.unique(references, return_inverse=True)
    is_of = (column[:, None] == np.arange(len(worlds))).astype(float)  # [pairs, references]
    count = ratios.shape[1]
    order: Floats = np.zeros_like(ratios)
    if count >= ORDER_FROM:
        order = first - first.mean(axis=1, keepdims=True)
    parameters = len(worlds) + (count >= ORDER_FROM)
    freedom = max(count - parameters, 1)

    medians = [np.median(ratios[:, column == world], axis=1) for world in range(len(worlds))]
    locations: Floats = np.stack(medians, axis=1)
    effect: Floats = np.zeros((len(ratios), 1))
    scale = effect
    for iteration in range(ITERATIONS):
        residuals = ratios - locations[:, column] - effect * order
        if iteration < SCALE_ITERATIONS:
            scale = _scale(residuals) * math.sqrt(count / freedom)
        weights = np.minimum(1.0, HUBER * scale / np.maximum(np.abs(residuals), TINY))
        weights = np.maximum(weights, TINY)
        locations = ((ratios - effect * order) * weights) @ is_of / (weights @ is_of)
        pull = weights * order
        power = (pull * order).sum(axis=1, keepdims=True)
        effect = (pull * (ratios - locations[:, column])).sum(axis=1, keepdims=True) / np.maximum(power, TINY)
    residuals = ratios - locations[:, column] - effect * order
    if turns is None or len(set(turns.tolist())) == count:
        per_pair = _variance(residuals, scale, parameters) * _inflation(residuals, scale)
        return Fit(locations, per_pair[:, None] / is_of.sum(axis=0), float(freedom), np.zeros(len(ratios)))
    return _with_turns(residuals, turns, locations, is_of.sum(axis=0), parameters - len(worlds))


def _with_turns(residuals: Floats, turns: NDArray[np.int64], locations: Floats, pairs: Floats, effects: int) -> Fit:
    """The fit if pairs of one turn share the noise of one batch of the contender.

    turns: [pairs] index of the turn.  pairs: [references] number of each one's pairs.  effects: number of fitted
    effects of the order, 0 or 1.
    """
    is_in = (turns[:, None] == np.arange(turns.max() + 1)).astype(float)  # [pairs, turns]
    count, number = is_in.shape
    means: Floats = residuals @ is_in / is_in.sum(axis=0)
    own = residuals - means[:, turns]
    parameters = min(len(pairs) + effects + number - 1, count - 1)
    per_pair = _variance(own, _scale(own) * math.sqrt(count / (count - parameters)), parameters)
    freedom = max(number - 1 - effects, 1)
    scale = _scale(means) * math.sqrt(number / freedom)
    of_mean = _variance(means, scale, 1 + effects) * _inflation(means, scale) / number
    common: Floats = np.maximum(of_mean - per_pair / count, 0.0)
    return Fit(locations, per_pair[:, None] / pairs, float(freedom), common)


def _scale(residuals: Floats) -> Floats:
    """[runs, 1] robust standard deviation."""
    size = np.abs(residuals)
    by_median = 1.4826 * np.median(size, axis=1, keepdims=True)
    return np.where(by_median > TINY, by_median, 1.2533 * size.mean(axis=1, keepdims=True))


def _variance(residuals: Floats, scale: Floats, parameters: int) -> Floats:
    """[runs] variance of one pair; divided by the number of pairs it is the M-estimate's (Huber 1981, 7.6)."""
    count = residuals.shape[1]
    inside = np.maximum((np.abs(residuals) <= HUBER * scale).mean(axis=1), 0.2)
    power = (np.clip(residuals, -HUBER * scale, HUBER * scale) ** 2).sum(axis=1)
    correction = 1 + parameters / count * (1 - inside) / inside
    variance: Floats = correction**2 * power / max(count - parameters, 1) / inside**2
    return variance


def _inflation(residuals: Floats, scale: Floats) -> Floats:
    """[runs] factor of the variance of a mean of correlated residuals.

    First-order autoregression, corrected for its bias.
    """
    count = residuals.shape[1]
    clipped = np.clip(residuals, -2 * scale, 2 * scale)
    power = np.maximum((clipped**2).sum(axis=1), TINY**2)
    raw = (clipped[:, 1:] * clipped[:, :-1]).sum(axis=1) / power
    correlation = np.clip(raw + (1 + 3 * raw) / count, 0.0, MOST_CORRELATION)
    inflation: Floats = (1 + correlation) / (1 - correlation)
    return inflation


def predict(found: Fit, prior: Prior, overhead_error: float, tail: float) -> tuple[Floats, Floats, Floats]:
    """(estimate, low, high), [runs] each, of the log speedup: the contender's world is one more world with its own offset.

    overhead_error: standard error that is added. tail: probability beyond either end.
    """
    grid = prior.grid
    evidence = _evidence(found, grid) + prior.log_mass(found)
    weight = np.exp(evidence - evidence.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    precision = _precision(found, grid)
    share = precision / precision.sum(axis=2, keepdims=True)
    middle = (share * found.locations[:, None]).sum(axis=2)
    stretch = (student(tail, found.freedom) / student(tail, math.inf)) ** 2
    noise = stretch * ((share**2 * found.variances[:, None]).sum(axis=2) + found.common[:, None])
    deviation = np.sqrt(noise + grid**2 * (1 + (share**2).sum(axis=2)) + overhead_error**2)
    return (
        (weight * middle).sum(axis=1),
        -_upper(-middle, deviation, weight, tail),
        _upper(middle, deviation, weight, tail),
    )


def _precision(found: Fit, grid: Floats) -> Floats:
    """[runs, grid, references] precision of the locations as estimates of the common mean."""
    precision: Floats = 1 / (grid[:, None] ** 2 + found.variances[:, None])
    return precision


def _evidence(found: Fit, grid: Floats) -> Floats:
    """[runs, grid] log likelihood of the locations given the standard deviation of offsets, their mean integrated out."""
    precision = _precision(found, grid)
    total = precision.sum(axis=2)
    mean = (precision * found.locations[:, None]).sum(axis=2) / total
    square = (precision * (found.locations[:, None] - mean[:, :, None]) ** 2).sum(axis=2)
    evidence: Floats = 0.5 * (np.log(precision).sum(axis=2) - np.log(total) - square)
    return evidence


def _upper(middle: Floats, deviation: Floats, weight: Floats, tail: float) -> Floats:
    """[runs] The point that a mixture of normal distributions exceeds with a probability of `tail`."""
    low: Floats = middle.min(axis=1)
    high: Floats = (middle + 8 * deviation).max(axis=1)
    for _ in range(26):
        point = (low + high) / 2
        beyond = (weight * _beyond((point[:, None] - middle) / deviation)).sum(axis=1) > tail
        low, high = np.where(beyond, point, low), np.where(beyond, high, point)
    return high


def _beyond(z: Floats) -> Floats:
    """Probability that a standard normal number exceeds z (Abramowitz and Stegun 26.2.17, error below 1e-7)."""
    size = np.abs(z)
    t = 1 / (1 + 0.2316419 * size)
    terms = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-(size**2) / 2) * terms / math.sqrt(2 * math.pi)
    beyond: Floats = np.where(z >= 0, tail, 1 - tail)
    return beyond


def student(tail: float, freedom: float) -> float:
    """Quantile of Student's t distribution by Wallace's approximation: too wide by 1 % at 5 degrees of freedom, by 4 % at 3."""
    z = NormalDist().inv_cdf(1 - tail)
    if math.isinf(freedom):
        return z
    stretched = z * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(stretched**2 / freedom))
