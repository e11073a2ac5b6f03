"""The interval of a speedup on simulated measurements. Needs numpy only, no GPU and no ranks."""

import asyncio
import itertools
import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from benchmarks.clock_model.noise import CONTENTION, MODELS, QUIET, QUIET_DEVICE, VIRTUAL_CORES, Noise
from benchmarks.clock_model.trial import EARLIER, Case, TrialScore, told_different, trial
from benchmarks.tables.scope import Conclusion, Scope, Tell

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
