"""A robust random-effects model of log ratios: the mean over reference worlds, and how much worlds differ.

Pairs with a slow batch are set aside. The others are fitted with Huber's M-estimator: one location per reference world and the
effect of the order. The spread of the locations beyond noise is tau, the standard deviation of world offsets. It is integrated
over its posterior distribution. Its prior is what references of earlier runs on this machine have shown.

All arrays have a leading axis of runs: a measurement is one run, the simulation evaluates thousands at once.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]

SLOW, LOW_QUANTILE = 1.5, 0.25
"""A batch is slow if it takes more than this factor times the lower quartile of its side."""
MOST_SHARE, APART, FEW_APART = 0.75, 3.0, 8
"""It is slow as well if it lies so many times the width of the narrowest 75 % of its side's batches above them: 8
standard deviations of normal noise, and twice as many with so few batches. On H200 one NCCL call in a hundred takes 0.7 ms
longer, which is 6 % of a batch."""
MOVED = 2.5
"""Standard deviations by which a side's quartile is moved, to see how much the pairs that are kept depend on it."""
OWN_SLOW = 2.33
"""Normal deviate (one-sided, 1 %) above which the slow batches of the contender are more than chance explains."""
HUBER = 1.345
"""Residuals beyond this many standard deviations get less weight (95 % efficient for normal noise)."""
ITERATIONS, SCALE_ITERATIONS = 10, 5
ORDER_FROM, FEWEST = 10, 6
"""With fewer pairs the effect of the order is not fitted; fewer show no noise."""
UNKNOWN = 100.0
"""Variance of a location whose noise is not known."""
MOST_CORRELATION = 0.8
TINY = 1e-12
ERRORS = 3.0
"""Half width of the interval in standard errors. With so many it may be looked at at any time."""
TAIL = 1 - NormalDist().cdf(ERRORS)
"""Probability beyond either end of the interval."""

GRID: Floats = 2e-4 * 400.0 ** (np.arange(36) / 31)
"""Values of tau: 32 up to 8 %, and 4 beyond."""
_ALLOWED = GRID < 0.0801
WIDE: Floats = _ALLOWED / _ALLOWED.sum()
"""Prior that is uniform in log(tau), up to 8 %."""
LARGE: Floats = _ALLOWED * GRID / (_ALLOWED * GRID).sum()
"""Prior that is uniform in tau, up to 8 %: the cautious one."""
CALM = ("device medium", "device long")
"""Classes whose prior is WIDE on a machine without history: 0.5 % of first runs err (simulated). By call time 1.5 % would."""
SPREAD = 0.5
"""A run's tau is lognormal around the machine's typical one, with this standard deviation of the logarithm."""
NEAR: Floats = np.exp(-0.5 * (np.log(GRID / GRID[:, None]) / SPREAD) ** 2)
"""[typical tau, tau of a run]; rows sum to 1."""
NEAR /= NEAR.sum(axis=1, keepdims=True)
SUDDEN, SURPRISE = 0.1, 3.0
"""Share of runs with any tau; factor by which a large tau must be more likely than the usual one to surprise."""
FORGET, FORGET_SURPRISED = 0.95, 0.25
"""Share of the history that remains after a run, and after a surprise. What is forgotten becomes as cautious as at first."""
LEAST_MASS = -60.0
ANY_OFFSET = ERRORS * 0.08 * math.sqrt(1.25)
"""Three standard errors of world offsets of 8 %, with four references."""


@dataclass(frozen=True)
class Fit:
    """A fit: the log ratios by reference world, with noise averaged."""

    locations: Floats
    """[runs, references] log ratio of each reference world to the contender's."""
    variances: Floats
    """[runs, references] variances of the locations from noise alone."""
    freedom: Floats
    """[runs] degrees of freedom of the noise variance."""
    common: Floats
    """[runs] variance that all locations share, from the contender's batches that several pairs share, and from setting aside."""

    @property
    def evidence(self) -> Floats:
        """[runs, grid] log likelihood of the locations by tau, their mean integrated out."""
        precision = self.precision
        total = precision.sum(axis=2)
        mean = (precision * self.locations[:, None]).sum(axis=2) / total
        square = (precision * (self.locations[:, None] - mean[:, :, None]) ** 2).sum(axis=2)
        evidence: Floats = 0.5 * (np.log(precision).sum(axis=2) - np.log(total) - square)
        return evidence

    @property
    def precision(self) -> Floats:
        """[runs, grid, references] precision of the locations as estimates of the common mean."""
        return 1 / (GRID[:, None] ** 2 + self.variances[:, None])


# --- pairs with a slow batch -----------------------------------------------------------------------------------------------


def undisturbed(references: Floats, contender: Floats, turns: int = 0) -> tuple[Flags, Floats]:
    """[runs, pairs] whether a pair is kept: neither of its batches is slow. [runs] variance of the kept ratios' mean by chance.

    Slow batches are the kernel's own if the contender has more of them than chance explains. Then they count.
    references, contender: [runs, pairs] log times.  turns: number of the contender's batches; 0: one for each pair.
    """
    kept: Flags = np.ones(references.shape, np.bool_)
    own = np.zeros((len(references), 1), np.bool_)
    for is_quick in (_quick, _near):
        quick = [is_quick(times) for times in (references, contender)]
        slow, count = [(~each).sum(axis=1) for each in quick], references.shape[1]
        share = np.clip((slow[0] + slow[1]) / (2 * count), 1e-9, 1 - 1e-9)
        own |= ((slow[1] - slow[0]) / np.sqrt(2 * count * share * (1 - share)) > OWN_SLOW)[:, None]
        kept &= (quick[0] & quick[1]) | own
    chance = _chance(references, contender, turns or count) + _chance(contender, references, turns or count)
    return kept, np.where(kept.all(axis=1), 0.0, chance)


def _chance(moved: Floats, other: Floats, batches: int) -> Floats:
    """[runs] variance of the kept log ratios' mean from the chance of one side's quartile, by moving it.

    It shifts the limit, and all ratios near it with it: in heavy noise more than the ratios' own scatter shows. Where slow
    batches stand apart, no batch is near the limit.
    """
    spread = MOVED * math.sqrt(LOW_QUANTILE * (1 - LOW_QUANTILE) / batches)
    means = []
    for share in (max(0.0, LOW_QUANTILE - spread), LOW_QUANTILE + spread):
        kept = _quick(moved, share) & _quick(other)
        means.append(((moved - other) * kept).sum(axis=1) / np.maximum(kept.sum(axis=1), 1))
    variance: Floats = ((means[1] - means[0]) / (2 * MOVED)) ** 2
    return variance


def _quick(times: Floats, share: float = LOW_QUANTILE) -> Flags:
    """[runs, batches] whether a batch is not much slower than the quick ones of its side."""
    return times <= np.quantile(times, share, axis=1, keepdims=True) + math.log(SLOW)


def _near(times: Floats) -> Flags:
    """[runs, batches] whether a batch does not stand apart from most of its side."""
    ordered, count = np.sort(times, axis=1), times.shape[1]
    most = math.ceil(MOST_SHARE * count)
    widths = ordered[:, most - 1 :] - ordered[:, : count - most + 1]
    first = widths.argmin(axis=1)[:, None]
    low, high = (np.take_along_axis(ordered, first + step, axis=1) for step in (0, most - 1))
    near: Flags = times <= high + APART * (1 + FEW_APART / count) * (high - low)
    return near


# --- the fit ---------------------------------------------------------------------------------------------------------------


def fit(
    ratios: Floats,
    references: Indices,
    first: Flags,
    turns: Indices | None = None,
    kept: Flags | None = None,
    chance: Floats | float = 0.0,
) -> Fit:
    """Fits log ratios in the order they were measured.

    Args:
        ratios: [runs, pairs] log(baseline time / contender time), finite.
        references: [pairs] index of the reference world, the same for all runs.
        first: [runs, pairs] whether the reference world ran first.
        turns: [pairs] index of the contender's batch, which pairs may share; None: each pair has its own.
        kept: [runs, pairs] pairs that count; None: all.
        chance: [runs] variance that all locations share from the choice of these pairs.
    """
    kept = np.ones(ratios.shape, np.bool_) if kept is None else kept
    worlds, column = np.unique(references, return_inverse=True)
    is_of = (column[:, None] == np.arange(len(worlds))).astype(float)  # [pairs, references]
    count = kept.sum(axis=1)
    each = kept @ is_of  # [runs, references] pairs
    with_order = count >= ORDER_FROM
    before = (first * kept).sum(axis=1) / np.maximum(count, 1)
    order = (first - before[:, None]) * kept * with_order[:, None]
    freedom = np.maximum(count - (each > 0).sum(axis=1) - with_order, 1)

    medians = [_median(ratios[:, column == world], kept[:, column == world]) for world in range(len(worlds))]
    locations: Floats = np.where(each > 0, np.concatenate(medians, axis=1), 0.0)
    effect: Floats = np.zeros((len(ratios), 1))
    scale = effect
    for iteration in range(ITERATIONS):
        residuals = (ratios - locations[:, column] - effect * order) * kept
        if iteration < SCALE_ITERATIONS:
            scale = _scale(residuals, kept) * np.sqrt(count / freedom)[:, None]
        weights = np.minimum(1.0, HUBER * scale / np.maximum(np.abs(residuals), TINY))
        weights = np.maximum(weights, TINY) * kept
        locations = ((ratios - effect * order) * weights) @ is_of / np.maximum(weights @ is_of, TINY**2)
        pull = weights * order
        power = (pull * order).sum(axis=1, keepdims=True)
        effect = (pull * (ratios - locations[:, column])).sum(axis=1, keepdims=True) / np.maximum(power, TINY)
    residuals = (ratios - locations[:, column] - effect * order) * kept
    if turns is not None and len(np.unique(turns)) < len(turns):
        per_pair, freedom, common = _of_turns(residuals, turns, kept, each, with_order)
    else:
        per_pair = _variance(residuals, scale, kept, count - freedom) * _inflation(residuals, scale)
        common = np.zeros(len(ratios))
    known = (each > 0) & (count >= FEWEST)[:, None]
    variances = np.where(known, per_pair[:, None] / np.maximum(each, 1), UNKNOWN)
    return Fit(locations, variances, freedom.astype(float), common + chance)


def _of_turns(
    residuals: Floats, turns: Indices, kept: Flags, each: Floats, with_order: Flags
) -> tuple[Floats, Indices, Floats]:
    """(variance of a pair, degrees of freedom, variance of the mean that all pairs share), [runs] each, if pairs share batches.

    turns: [pairs] index of the contender's batch.  each: [runs, references] pairs.
    """
    is_in = (turns[:, None] == np.unique(turns)).astype(float)  # [pairs, turns]
    sizes = kept @ is_in
    used, count = sizes > 0, kept.sum(axis=1)
    means: Floats = residuals @ is_in / np.maximum(sizes, 1)
    own = (residuals - means @ is_in.T) * kept
    number = used.sum(axis=1)
    parameters = np.minimum((each > 0).sum(axis=1) + with_order + number - 1, count - 1)
    stretch = np.sqrt(count / np.maximum(count - parameters, 1))[:, None]
    per_pair = _variance(own, _scale(own, kept) * stretch, kept, parameters)
    freedom = np.maximum(number - 1 - with_order, 1)
    scale = _scale(means, used) * np.sqrt(number / freedom)[:, None]
    of_mean = _variance(means, scale, used, 1 + with_order) * _inflation(means, scale) / np.maximum(number, 1)
    common: Floats = np.maximum(of_mean - per_pair / np.maximum(count, 1), 0.0)
    return per_pair, freedom, common


def _median(values: Floats, kept: Flags) -> Floats:
    """[runs, 1] median of the kept values; meaningless where none is."""
    ordered = np.sort(np.where(kept, values, np.inf), axis=1)
    count = kept.sum(axis=1, keepdims=True)
    ends = [np.clip(place, 0, values.shape[1] - 1) for place in ((count - 1) // 2, count // 2)]
    low, high = (np.take_along_axis(ordered, end, axis=1) for end in ends)
    return np.where(count > 0, (low + high) / 2, 0.0)


def _scale(residuals: Floats, kept: Flags) -> Floats:
    """[runs, 1] robust standard deviation. Residuals that are not kept are 0."""
    size = np.abs(residuals)
    by_median = 1.4826 * _median(size, kept)
    mean = size.sum(axis=1, keepdims=True) / np.maximum(kept.sum(axis=1, keepdims=True), 1)
    return np.where(by_median > TINY, by_median, 1.2533 * mean)


def _variance(residuals: Floats, scale: Floats, kept: Flags, parameters: Indices) -> Floats:
    """[runs] variance of one pair; divided by the number of pairs it is the M-estimate's (Huber 1981, 7.6)."""
    count = np.maximum(kept.sum(axis=1), 1)
    inside = np.maximum(((np.abs(residuals) <= HUBER * scale) & kept).sum(axis=1) / count, 0.2)
    power = (np.clip(residuals, -HUBER * scale, HUBER * scale) ** 2).sum(axis=1)
    correction = 1 + parameters / count * (1 - inside) / inside
    variance: Floats = correction**2 * power / np.maximum(count - parameters, 1) / inside**2
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


# --- how much worlds differ on this machine --------------------------------------------------------------------------------


def no_history(runs: int = 1, offsets_class: str = "") -> Floats:
    """[runs, grid] log mass of the machine's typical tau before the first run. offsets_class: as `Clock.offsets_class`."""
    first = WIDE if offsets_class in CALM else LARGE
    return np.tile(np.maximum(np.log(first + TINY), LEAST_MASS), (runs, 1))


def _shares(log_mass: Floats) -> Floats:
    """[runs, grid] a log mass as shares that sum to 1."""
    shares = np.exp(log_mass - log_mass.max(axis=1, keepdims=True))
    normalised: Floats = shares / shares.sum(axis=1, keepdims=True)
    return normalised


def _surprises(history: Floats, evidence: Floats) -> Flags:
    """[runs, 1] whether a large tau explains the references far better than the machine's usual one."""
    like = _shares(evidence)
    surprises: Flags = like @ LARGE > SURPRISE * (like * (_shares(history) @ NEAR)).sum(axis=1)
    return surprises[:, None]


def prior(history: Floats, evidence: Floats) -> Floats:
    """[runs, grid] prior of a run's tau. If its references surprise, the history does not count."""
    usual = (1 - SUDDEN) * _shares(history) @ NEAR + SUDDEN * WIDE
    return np.where(_surprises(history, evidence), LARGE, usual)


def reference_evidence(times: Floats, references: Indices, cores: Indices) -> Floats | None:
    """[runs, grid] log likelihood of tau from reference worlds alone; None if there are too few batches.

    A cycle has one batch of every reference on the same cores, so the speeds of cores and the machine's change of speed cancel.
    Each is compared with the cycle's median, which one disturbed batch does not move.
    No time of the contender is used, so a kernel cannot teach the machine's history.
    times: [runs, batches] log times in the order they were measured.  references, cores: [batches] index of the world, and a
    number for the cores that its ranks were pinned to.
    """
    worlds = np.unique(references)
    places = [
        [np.flatnonzero((references == world) & (cores == core)) for world in worlds] for core in np.unique(cores)
    ]
    places = [[each[: min(map(len, group))] for each in group] for group in places]
    index = np.concatenate([np.stack(group) for group in places], axis=1) if places else np.zeros((0, 0), np.int64)
    number, cycles = index.shape
    if number < 2 or number * cycles < FEWEST or cycles < 2:
        return None
    series = times[:, index]  # [runs, worlds, cycles]
    quick = _quick(series.reshape(len(times), -1)).reshape(series.shape).all(axis=1, keepdims=True)
    centred = (series - np.median(series, axis=1, keepdims=True)).reshape(len(times), -1)
    kept = np.broadcast_to(quick, series.shape).reshape(centred.shape)
    found = fit(centred, np.repeat(np.arange(number), cycles), np.zeros(centred.shape, np.bool_), kept=kept)
    return Fit(found.locations, found.variances * number / (number - 1), found.freedom, found.common).evidence


def learn(history: Floats, evidence: Floats) -> Floats:
    """[runs, grid] the history after a run with this evidence of its references."""
    kept = np.where(_surprises(history, evidence), FORGET_SURPRISED, FORGET)
    like = _shares(evidence) @ ((1 - SUDDEN) * NEAR + SUDDEN * WIDE).T
    mass = kept * history + (1 - kept) * no_history(len(history)) + np.log(like + TINY)
    learned: Floats = np.maximum(mass - mass.max(axis=1, keepdims=True), LEAST_MASS)
    return learned


# --- the interval ----------------------------------------------------------------------------------------------------------


def predict(
    found: Fit, history: Floats, overhead_error: float = 0.0, beside: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """(estimate, low, high), [runs] each, of the log speedup: the contender's world has an offset of its own, too.

    history: [runs, grid] log mass.  overhead_error: standard error that is added.  beside: evidence of other worlds.
    """
    evidence = found.evidence if beside is None else found.evidence + beside
    weight = _shares(evidence + np.log(prior(history, evidence) + TINY**2))
    share = found.precision / found.precision.sum(axis=2, keepdims=True)
    middle = (share * found.locations[:, None]).sum(axis=2)
    stretch = (student(TAIL, found.freedom) / ERRORS)[:, None] ** 2
    noise = stretch * ((share**2 * found.variances[:, None]).sum(axis=2) + found.common[:, None])
    offsets = GRID**2 * (1 + (share**2).sum(axis=2))
    deviation = np.sqrt(noise + offsets + overhead_error**2)
    return (weight * middle).sum(axis=1), -_upper(-middle, deviation, weight), _upper(middle, deviation, weight)


def by_ranks(ratios: Floats) -> tuple[Floats, Floats, Floats]:
    """(estimate, low, high), [runs] each, of the median of log ratios, whatever their distribution, from all pairs.

    For machines so loaded that hardly a pair is undisturbed. Infinite ends: too few pairs. It allows for any offset of worlds.
    """
    ordered, count = np.sort(ratios, axis=1), ratios.shape[1]
    below, left_out = 0.0, 0  # probability that more pairs than are left out lie on one side of the median
    while (below := below + math.comb(count, left_out) / 2.0**count) <= TAIL:
        left_out += 1
    middle: Floats = np.median(ratios, axis=1)
    if not left_out:
        return middle, np.full_like(middle, -np.inf), np.full_like(middle, np.inf)
    return middle, ordered[:, left_out - 1] - ANY_OFFSET, ordered[:, -left_out] + ANY_OFFSET


def _upper(middle: Floats, deviation: Floats, weight: Floats) -> Floats:
    """[runs] The point that a mixture of normal distributions exceeds with a probability of TAIL."""
    low: Floats = middle.min(axis=1)
    high: Floats = (middle + 9 * deviation).max(axis=1)
    for _ in range(26):
        point = (low + high) / 2
        beyond = (weight * _beyond((point[:, None] - middle) / deviation)).sum(axis=1) > TAIL
        low, high = np.where(beyond, point, low), np.where(beyond, high, point)
    return high


def _beyond(z: Floats) -> Floats:
    """Probability that a standard normal number exceeds z (Abramowitz and Stegun 26.2.17, error below 1e-7)."""
    size = np.abs(z)
    t = 1 / (1 + 0.2316419 * size)
    terms = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-(size**2) / 2) * terms / math.sqrt(2 * math.pi)
    return np.where(z >= 0, tail, 1 - tail)


def student(tail: float, freedom: Floats) -> Floats:
    """Quantile of Student's t distribution by Wallace's approximation: too wide by 1 % at 5 degrees of freedom, by 4 % at 3."""
    z = -NormalDist().inv_cdf(tail)
    stretched = z * (8 * freedom + 3) / (8 * freedom + 1)
    return np.sqrt(freedom * np.expm1(stretched**2 / freedom))
