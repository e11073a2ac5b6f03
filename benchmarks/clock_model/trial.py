"""Simulates many measurements under the stopping rule, and counts how often an estimator is right about them."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.clock_model.estimators import ESTIMATORS, Ends, MeasuredPairs
from benchmarks.clock_model.noise import MadeBatches, Noise, make
from sandbox.timing import stopping_rule
from sandbox.timing.interval import FEWEST, HALF_WIDTHS, NOISY_PERCENT

CHECK_TIMES = stopping_rule.CHECK_TIMES


class Case(msgspec.Struct, frozen=True):
    """A simulated case.

    offset: spread of world offsets (log); references: number of reference worlds; budget_s: of the stopping rule;
    faster: real speedup minus 1.
    """

    noise: Noise
    offset: float
    references: int
    budget_s: float = 1.0
    faster: float = 0.0


class TrialScore(msgspec.Struct, frozen=True):
    """The scores of one estimator over the runs of one case; shares between 0 and 1."""

    runs: int
    called: float
    """Share called faster or slower."""
    wrong: float
    """Share called faster although it is not, or slower although it is not."""
    covered: float
    """Share with the truth inside the interval."""
    too_noisy: float
    half_width: float
    """Median, of the natural logarithm."""
    seconds: float
    """Mean."""


def measured(case: Case, batches: MadeBatches, random: np.random.Generator) -> MeasuredPairs:
    """Adds the worlds' offsets and the difference to simulated batches."""
    runs, pairs = batches.baseline.shape
    references = np.arange(pairs) % case.references
    offsets = random.normal(0, case.offset, (runs, case.references + 1))
    return MeasuredPairs(
        batches.baseline + offsets[:, references] + math.log1p(case.faster),
        batches.contender + offsets[:, -1:],
        batches.first,
        references,
        case.noise.clock,
    )


def pairs_at(case: Case) -> list[int]:
    """The number of pairs at each check."""
    return [max(int(case.noise.pairs_per_s * case.budget_s * look), FEWEST) for look in CHECK_TIMES]


def trial(case: Case, runs: int, names: Sequence[str], seed: int = 0) -> dict[str, TrialScore]:
    """Scores of estimators by name, all on the same simulated measurements."""
    random = np.random.default_rng(seed)
    counts = pairs_at(case)
    whole = measured(case, make(case.noise, random, runs, counts[-1]), random)
    return {name: _score(name, case, whole, counts) for name in names}


def _score(name: str, case: Case, whole: MeasuredPairs, counts: list[int]) -> TrialScore:
    runs = len(whole.baseline)
    ends: Ends = (np.zeros(runs), np.zeros(runs), np.zeros(runs))
    seconds = np.zeros(runs)
    going = np.arange(runs)
    for look, count in zip(CHECK_TIMES, counts, strict=True):
        if count < stopping_rule.LEAST_PAIRS and look != CHECK_TIMES[-1]:
            continue
        part = MeasuredPairs(
            whole.baseline[going, :count],
            whole.contender[going, :count],
            whole.first[going, :count],
            whole.references[:count],
            whole.clock,
        )
        found = ESTIMATORS[name](part)
        for end, new in zip(ends, found, strict=True):
            end[going] = new
        seconds[going] = look * case.budget_s
        going = going[~_is_enough(*found)]
        if not len(going):
            break
    _, low, high = ends
    width = (high - low) / 2
    truth = math.log1p(case.faster)
    above, below = low > 0, high < 0
    return TrialScore(
        runs=runs,
        called=float((above | below).mean()),
        wrong=float(((above & (truth <= 0)) | (below & (truth >= 0))).mean()),
        covered=float(((low <= truth) & (truth <= high)).mean()),
        too_noisy=float((~above & ~below & (np.expm1(HALF_WIDTHS * width) * 100 > NOISY_PERCENT)).mean()),
        half_width=float(np.median(width)),
        seconds=float(seconds.mean()),
    )


def _is_enough(middle: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether intervals of one clock are precise enough, by run, as in `stopping_rule.is_enough`."""
    width = (high - low) / 2
    enough = math.log1p(stopping_rule.ENOUGH_PERCENT / 100) / HALF_WIDTHS
    settled: NDArray[np.bool_] = (width <= enough) | (np.abs(middle) >= stopping_rule.CLEAR * width)
    return settled
