"""The interval of a speedup on simulated measurements. Needs numpy only, no GPU and no ranks."""

import asyncio
import itertools
import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from benchmarks.clock_model.noise import CONTENTION, MODELS, QUIET, QUIET_DEVICE, VIRTUAL_CORES, Floats, Noise, make
from benchmarks.tables.scope import Conclusion, Scope, Tell
from sandbox.machine.placement import core_in_turn
from sandbox.protocol.events import Interval
from sandbox.timing import conclusion, random_effects
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
    kept = random_effects.undisturbed(baseline, contender)
    found = random_effects.fit(baseline - contender, which, first, kept=kept)
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
    said = conclusion.conclude(call, device, why="too few pairs").outcome in ("faster", "slower")
    return said or bool(conclusion.first_clock(call, device))


RUNS = 400
"""Simulated measurements of each case."""
OFFSETS = {"call": (0.001, 0.005, 0.02, 0.05), "device": (0.001, 0.003, 0.01, 0.03)}
"""Standard deviations of world offsets, by clock. Between 0 and 3 % were measured on machines."""
TYPICAL = {"call": 0.003, "device": 0.001}
DIFFERENCES = (0.03, 0.10, 0.50, 9.0)
HISTORIES = (0, 2, 5, EARLIER)
SHARED = 0.7
"""Correlation of a world's offsets by both clocks. Without any, either clock errs as often."""
MOST_WRONG = 0.01
"""Share of runs in which identical code may be called faster or slower, or the truth may be outside."""
LEAST_STRETCH, MOST_STRETCH = 0.9, 5.0
"""Limits of the half width in three standard deviations of the estimate's real error: an interval must not be too wide either."""


class ModelRow(TrialScore, frozen=True, kw_only=True):
    """The scores of the interval in one case."""

    table: str
    noise: str
    offsets: tuple[float, ...]
    """Standard deviations of world offsets; their scores are averaged."""
    difference: float
    """How much faster the code really is: 0.1 for 10 %."""
    earlier: int
    runs: int

    @property
    def fault(self) -> bool:
        """Whether the interval is wrong more often than chance explains, or far wider than its error."""
        return max(self.wrong, self.missed) > _allowed(self.runs) or not LEAST_STRETCH < self.stretch < MOST_STRETCH

    def text(self) -> str:
        """One line under `HEADER`."""
        offsets = "/".join(f"{100 * offset:g}" for offset in self.offsets)
        widths = " ".join(f"{100 * width:>6.1f}" for width in self.half_widths)
        return (
            f"{self.noise:<21} {offsets:>14} {100 * self.difference:>4.0f} {self.earlier:>4} {100 * self.wrong:>6.2f} "
            f"{100 * self.missed:>6.2f} {100 * self.called:>6.0f} {100 * self.too_noisy:>5.0f}  {widths} "
            f"{self.stretch:>5.2f}{'  FAULT' * self.fault}"
        )


class EitherRow(msgspec.Struct, frozen=True, kw_only=True):
    """How often identical code is told to differ, by either of two clocks."""

    table: str = "either clock"
    noises: tuple[str, str]
    offsets: tuple[float, float]
    duel: bool
    earlier: int
    runs: int
    wrong: float

    @property
    def fault(self) -> bool:
        """Whether it is more often than chance explains."""
        return self.wrong > _allowed(self.runs)

    def text(self) -> str:
        """One line: both noises, offsets in percent, the kind of run, earlier runs, and the share in percent."""
        kind, offsets = "duel" if self.duel else "run", "/".join(f"{100 * offset:g}" for offset in self.offsets)
        said = f"{' and '.join(self.noises)}, {offsets}, {kind}, {self.earlier} earlier: {100 * self.wrong:.2f} %"
        return said + "  FAULT" * self.fault


def _allowed(runs: int) -> float:
    """The largest share of runs that chance explains where MOST_WRONG are wrong."""
    return MOST_WRONG + 3 * math.sqrt(MOST_WRONG / runs)


HEADER = (
    f"{'noise':<21} {'offsets %':>14} {'diff':>4} {'runs':>4} {'wrong%':>6} {'miss%':>6} {'called':>6} {'noisy':>5}  "
    f"{'+-12%':>6} {'+-48%':>6} {'+-192%':>6} {'wide':>5}"
)
"""diff: percent. runs: earlier ones on the machine. wrong, miss: called against the truth, truth outside the interval, at any of
ten looks. called, noisy: at 48 pairs. +-: half width. wide: half width in three standard deviations of the real error."""


def conclude(rows: Sequence[ModelRow | EitherRow]) -> Conclusion:
    """No lines, because the rows are complete. Sound: no row has a fault."""
    return Conclusion([], not any(row.fault for row in rows))


async def measure(scope: Scope, tell: Tell, rows: list[ModelRow | EitherRow]) -> None:
    """Makes four tables: identical code and known differences on every noise, histories, and identical code by either clock."""
    runs = scope.repetitions or RUNS
    parts: tuple[tuple[str, Iterator[ModelRow | EitherRow]], ...] = (
        ("identical code", identical(runs)),
        ("a known difference", differences(runs)),
        ("identical code, by earlier runs", histories(runs)),
        ("identical code told to differ by either clock", either_clock(runs)),
    )
    for title, part in parts:
        tell(f"\n{title}\n{HEADER}")
        for row in part:
            tell(row.text())
            rows.append(row)
            await asyncio.sleep(0)  # here it can be interrupted


def identical(runs: int, noises: Sequence[Noise] = MODELS) -> Iterator[ModelRow]:
    """Identical code on every noise, by world offsets."""
    for noise in noises:
        yield _row("identical", runs, [Case(noise, offset) for offset in OFFSETS[noise.clock]])


def differences(runs: int, noises: Sequence[Noise] = MODELS) -> Iterator[ModelRow]:
    """Known differences on every noise with typical offsets."""
    for noise in noises:
        for difference in DIFFERENCES:
            yield _row("differences", runs, [Case(noise, TYPICAL[noise.clock], difference)])


def histories(runs: int) -> Iterator[ModelRow]:
    """Identical code by the number of earlier runs, on a quiet and on a loaded machine."""
    for noise in (QUIET, CONTENTION):
        for earlier in HISTORIES:
            yield _row("histories", runs, [Case(noise, 0.005, earlier=earlier)])


def either_clock(
    runs: int, noises: Sequence[Noise] = (QUIET, CONTENTION, VIRTUAL_CORES), earlier: Sequence[int] = (0, EARLIER)
) -> Iterator[EitherRow]:
    """Identical code by both clocks, in runs and in duels. noises: of end-to-end time."""
    for number, (duel, noise, before, place) in enumerate(itertools.product((False, True), noises, earlier, (1, 2))):
        of = [(noise, OFFSETS["call"][place]), (QUIET_DEVICE, OFFSETS["device"][place])]
        call, device = (Case(each, offset, earlier=before, rival=duel) for each, offset in of)
        yield EitherRow(
            noises=(noise.name, QUIET_DEVICE.name),
            offsets=(call.offset, device.offset),
            duel=duel,
            earlier=before,
            runs=runs,
            wrong=told_different(call, device, SHARED, runs, seed=number),
        )


def _row(table: str, runs: int, cases: Sequence[Case]) -> ModelRow:
    scores = [trial(case, runs, seed=seed) for seed, case in enumerate(cases)]

    def mean(name: str) -> float:
        return float(np.mean([getattr(score, name) for score in scores]))

    widths = [sum(score.half_widths[place] for score in scores) / len(scores) for place in range(3)]
    return ModelRow(
        table=table,
        noise=cases[0].noise.name,
        offsets=tuple(case.offset for case in cases),
        difference=cases[0].faster,
        earlier=cases[0].earlier,
        runs=runs * len(cases),
        half_widths=(widths[0], widths[1], widths[2]),
        **{name: mean(name) for name in ("wrong", "missed", "called", "too_noisy", "stretch")},
    )
