"""Simulates many measurements on a machine with a history, and counts how often the interval is right about them."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from benchmarks.clock_model.noise import Floats, Noise, make
from sandbox.machine.placement import core_in_turn
from sandbox.protocol.events import Interval
from sandbox.timing import random_effects
from sandbox.timing.conclusion import conclude, first_clock
from sandbox.timing.interval import FEWEST, HALF_WIDTHS, NOISY_PERCENT, WIDEST
from sandbox.timing.turns import FIRST_CYCLES

Flags = random_effects.Flags
REFERENCES = 4
CONTENDER, RIVAL = REFERENCES, REFERENCES + 1
"""Numbers of the kernels' worlds, after those of the references."""
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
    rival: bool = False
    """Whether a second kernel runs in the references' place, and references beside the pairs."""


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


Looks = Sequence[tuple[Floats, Floats, Floats]]
"""At each of LOOKS: (estimate, low, high) of the log speedup, [runs] each; infinite ends claim nothing."""


def deviates(random: np.random.Generator, runs: int) -> Floats:
    """[runs, worlds] offsets of worlds in standard deviations."""
    return random.normal(0, 1, (runs, RIVAL + 1))


def spread(random: np.random.Generator, runs: int, offset: float) -> Floats:
    """[runs, 1] each run's standard deviation of world offsets. offset: the machine's."""
    spread: Floats = offset * np.exp(random.normal(0, RUN_SPREAD, (runs, 1)))
    return spread


def history(case: Case, random: np.random.Generator, runs: int) -> Floats:
    """[runs, grid] what earlier runs have taught."""
    mass = random_effects.no_history(runs, f"{case.noise.clock} long")
    which, cores = _references(case, EARLIER_PAIRS)
    for _ in range(case.earlier):
        offsets = deviates(random, runs) * spread(random, runs, case.offset)
        batches = make(case.noise, random, runs, EARLIER_PAIRS)
        evidence = random_effects.reference_evidence(batches.baseline + offsets[:, which], which, cores)
        assert evidence is not None
        mass = random_effects.learn(mass, evidence)
    return mass


def _references(case: Case, batches: int) -> tuple[random_effects.Indices, random_effects.Indices]:
    """[batches] index of the reference that runs each batch, and a number for its cores."""
    number = np.arange(batches)
    turns = number // REFERENCES if case.rival else number
    return number % REFERENCES, np.array([core_in_turn(range(case.noise.cores), int(turn)) for turn in turns])


def looks(case: Case, random: np.random.Generator, offsets: Floats) -> Looks:
    """Simulates measurements, and computes their intervals at each look. offsets: [runs, worlds] logarithms."""
    runs, pairs, more = len(offsets), LOOKS[-1], FIRST_CYCLES * REFERENCES
    mass = history(msgspec.structs.replace(case, rival=False), random, runs)
    batches = make(case.noise, random, runs, pairs)
    which, cores = _references(case, pairs + more)
    baseline = batches.baseline + offsets[:, [RIVAL] if case.rival else which[:pairs]] + math.log1p(case.faster)
    contender = batches.contender + offsets[:, [CONTENDER]]
    beside = make(case.noise, random, runs, pairs + more).baseline + offsets[:, which] if case.rival else None
    found = []
    for look in LOOKS:
        evidence = None
        if beside is not None:  # two references run the first pairs' iterations
            count = look + min(look, more)
            evidence = random_effects.reference_evidence(beside[:, :count], which[:count], cores[:count])
        of = np.zeros(look, np.int64) if case.rival else which[:look]
        found.append(interval(baseline[:, :look], contender[:, :look], batches.first[:, :look], mass, of, evidence))
    return found


def interval(
    baseline: Floats,
    contender: Floats,
    first: Flags,
    mass: Floats,
    which: random_effects.Indices,
    evidence: Floats | None,
) -> tuple[Floats, Floats, Floats]:
    """(estimate, low, high) as in `Looks`. which: [pairs] the reference of each. evidence: of worlds beside the pairs."""
    kept, chance = random_effects.undisturbed(baseline, contender)
    found = random_effects.fit(baseline - contender, which, first, kept=kept, chance=chance)
    few = kept.sum(axis=1) < FEWEST
    fitted, ranked = random_effects.predict(found, mass, 0.0, evidence), random_effects.by_ranks(baseline - contender)
    middle, low, high = (np.where(few, rank, fit) for rank, fit in zip(ranked, fitted, strict=True))
    claims = high - low <= math.log(WIDEST)
    return middle, np.where(claims, low, -np.inf), np.where(claims, high, np.inf)


def trial(case: Case, runs: int, seed: int = 0) -> TrialScore:
    """Scores the interval on simulated measurements, all with the same history."""
    random = np.random.default_rng(seed)
    offsets = deviates(random, runs) * spread(random, runs, case.offset)
    truth = math.log1p(case.faster)
    wrong, missed = (np.zeros(runs, np.bool_) for _ in range(2))
    widths: dict[int, Floats] = {}
    called, found = wrong, looks(case, random, offsets)
    for look, (_, low, high) in zip(LOOKS, found, strict=True):
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
        stretch=medians[2] / (3 * float((found[-1][0] - truth).std())),
    )


def told_different(call: Case, device: Case, shared: float, runs: int, seed: int = 0) -> float:
    """The share of runs of identical code that are told to differ at any look, by either clock.

    shared: correlation of a world's offsets by both clocks.
    """
    random = np.random.default_rng(seed)
    by_call, own = deviates(random, runs), deviates(random, runs)
    by_device = shared * by_call + math.sqrt(1 - shared**2) * own
    both = zip((call, device), (by_call, by_device), strict=True)
    found = [looks(case, random, each * spread(random, runs, case.offset)) for case, each in both]
    told = np.zeros(runs, np.bool_)
    for at in zip(*found, strict=True):
        claims = [(low > 0) | (high < 0) for _, low, high in at]
        for run in map(int, np.flatnonzero((claims[0] | claims[1]) & ~told)):
            told[run] = _tells_difference(*(_of_run(each, run) for each in at))
    return float(told.mean())


def _of_run(look: tuple[Floats, Floats, Floats], run: int) -> Interval | None:
    """The interval of one run; None if it claims nothing."""
    middle, low, high = (float(end[run]) for end in look)
    return Interval(*map(math.exp, (middle, low, high))) if math.isfinite(high - low) else None


def _tells_difference(call: Interval | None, device: Interval | None) -> bool:
    """Whether a person reads that the code is faster or slower."""
    said = conclude(call, device, why="too few pairs").outcome in ("faster", "slower")
    return said or bool(first_clock(call, device))
