"""Simulates many measurements on a machine with a history, and counts how often the interval is right about them."""

import math

import msgspec
import numpy as np

from benchmarks.clock_model.noise import Floats, Noise, make
from sandbox.machine.placement import core_in_turn
from sandbox.timing import random_effects
from sandbox.timing.interval import FEWEST, HALF_WIDTHS, NOISY_PERCENT, WIDEST

Flags = random_effects.Flags
REFERENCES = 4
LOOKS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
"""Pairs at each look: a claim at any of them counts."""
EARLIER, EARLIER_PAIRS = 20, 48
"""Earlier runs on the machine, and their pairs."""
RUN_SPREAD = 0.4
"""A run's spread of offsets is lognormal around the machine's, with this standard deviation."""


class Case(msgspec.Struct, frozen=True):
    """A simulated case. offset: spread of world offsets (log) of the machine; faster: real speedup minus 1."""

    noise: Noise
    offset: float
    faster: float = 0.0
    earlier: int = EARLIER
    before: float | None = None
    """Spread of world offsets in earlier runs, if it was another one."""


class TrialScore(msgspec.Struct, frozen=True):
    """Scores over the runs of one case; shares between 0 and 1."""

    wrong: float
    """Share called faster although it is not, or slower although it is not, at any look."""
    missed: float
    """Share with the truth outside the interval at any look."""
    called: float
    """Share called faster or slower, right or wrong, at 48 pairs."""
    too_noisy: float
    """Share without a conclusion at 48 pairs."""
    half_widths: tuple[float, float, float]
    """Median of the logarithm, at 12, 48 and 192 pairs."""
    stretch: float
    """Median half width at 192 pairs in three standard deviations of the estimate's real error."""


def times(
    case: Case, random: np.random.Generator, runs: int, pairs: int, offset: float
) -> tuple[Floats, Floats, Flags]:
    """Log times of references and contender, and whether the reference ran first, [runs, pairs] each."""
    batches = make(case.noise, random, runs, pairs)
    spread = offset * np.exp(random.normal(0, RUN_SPREAD, (runs, 1)))
    offsets = random.normal(0, 1, (runs, REFERENCES + 1)) * spread
    which = np.arange(pairs) % REFERENCES
    baseline = batches.baseline + offsets[:, which] + math.log1p(case.faster)
    return baseline, batches.contender + offsets[:, -1:], batches.first


def history(case: Case, random: np.random.Generator, runs: int) -> Floats:
    """[runs, grid] what earlier runs have taught."""
    mass = random_effects.no_history(runs, f"{case.noise.clock} long")
    offset = case.offset if case.before is None else case.before
    which = np.arange(EARLIER_PAIRS) % REFERENCES
    cores = np.array([core_in_turn(range(case.noise.cores), pair) for pair in range(EARLIER_PAIRS)])
    for _ in range(case.earlier):
        baseline, _, _ = times(case, random, runs, EARLIER_PAIRS, offset)
        evidence = random_effects.reference_evidence(baseline, which, cores)
        assert evidence is not None
        mass = random_effects.learn(mass, evidence)
    return mass


def interval(baseline: Floats, contender: Floats, first: Flags, mass: Floats) -> tuple[Floats, Floats, Floats]:
    """(estimate, low, high) of the log speedup, [runs] each; infinite ends claim nothing."""
    kept = random_effects.undisturbed(baseline, contender)
    which = np.arange(baseline.shape[1]) % REFERENCES
    found = random_effects.fit(baseline - contender, which, first, kept=kept)
    few = kept.sum(axis=1) < FEWEST
    fitted, ranked = random_effects.predict(found, mass), random_effects.by_ranks(baseline - contender)
    middle, low, high = (np.where(few, rank, fit) for rank, fit in zip(ranked, fitted, strict=True))
    claims = high - low <= math.log(WIDEST)
    return middle, np.where(claims, low, -np.inf), np.where(claims, high, np.inf)


def trial(case: Case, runs: int, seed: int = 0) -> TrialScore:
    """Scores the interval on simulated measurements, all with the same history."""
    random = np.random.default_rng(seed)
    mass = history(case, random, runs)
    baseline, contender, first = times(case, random, runs, LOOKS[-1], case.offset)
    truth = math.log1p(case.faster)
    wrong, missed = (np.zeros(runs, np.bool_) for _ in range(2))
    widths: dict[int, Floats] = {}
    called, middle = wrong, baseline[:, 0]
    for look in LOOKS:
        middle, low, high = interval(baseline[:, :look], contender[:, :look], first[:, :look], mass)
        wrong = wrong | ((low > 0) & (truth <= 0)) | ((high < 0) & (truth >= 0))
        missed = missed | (low > truth) | (high < truth)
        widths[look] = (high - low) / 2
        if look == EARLIER_PAIRS:
            called = (low > 0) | (high < 0)
    medians = [float(np.median(widths[look])) for look in (12, 48, 192)]
    noisy = np.expm1(HALF_WIDTHS * np.minimum(widths[EARLIER_PAIRS], 20.0)) * 100 > NOISY_PERCENT
    return TrialScore(
        wrong=float(wrong.mean()),
        missed=float(missed.mean()),
        called=float(called.mean()),
        too_noisy=float((~called & noisy).mean()),
        half_widths=(medians[0], medians[1], medians[2]),
        stretch=medians[2] / (3 * float((middle - truth).std())),
    )
