"""Estimators of a speedup compared on simulated measurements. Needs numpy only, no GPU and no ranks."""

import asyncio
import math
from collections.abc import Iterator, Sequence

import msgspec

from benchmarks.clock_model.estimators import ESTIMATORS, USED
from benchmarks.clock_model.noise import MODELS, QUIET_DEVICE, VIRTUAL_CORES, Noise
from benchmarks.clock_model.trial import Case, TrialScore, trial
from benchmarks.tables.scope import Conclusion, Scope, Tell

RUNS = 400
"""Simulated measurements of each case."""
OFFSETS = {"call": (0.0, 0.003, 0.01, 0.02), "device": (0.001, 0.003, 0.01, 0.03)}
"""Standard deviations of world offsets that were measured on machines, by clock."""
ALL_OFFSETS = (0.0, 0.003, 0.01, 0.03, 0.08)
TYPICAL = {"call": 0.003, "device": 0.001}
DIFFERENCES = (0.03, 0.10, 0.20, 0.50)
REFERENCES = (1, 2, 3, 4)
BUDGETS = (1.0, 4.0)
USUAL = 3
"""Number of references in the comparison of estimators."""
MOST_WRONG = 0.015
"""Share of runs in which identical code may be called faster or slower."""


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of an estimator in one case. Shares between 0 and 1, widths of natural logarithms."""

    table: str
    estimator: str
    noise: str
    references: int
    budget_s: float
    offsets: tuple[float, ...]
    """Standard deviations of world offsets; their scores are averaged."""
    difference: float
    """How much faster the code really is: 0.1 for 10 %."""
    runs: int
    wrong: float
    """Share called faster or slower against the truth."""
    covered: float
    """Share with the truth inside the interval."""
    called: float
    too_noisy: float
    half_width: float
    seconds: float

    @property
    def fault(self) -> bool:
        """Whether the used estimator is wrong more often than chance explains, for offsets measured on machines."""
        if self.estimator != USED or not any(set(self.offsets) <= set(seen) for seen in OFFSETS.values()):
            return False
        return self.wrong > MOST_WRONG + 3 * math.sqrt(MOST_WRONG / self.runs)

    def text(self) -> str:
        """One line under `HEADER`."""
        offsets = "/".join(f"{100 * offset:g}" for offset in self.offsets)
        return (
            f"{self.estimator:<25} {self.noise:<21} {self.references:>2} {self.budget_s:>3.0f} {offsets:>12} "
            f"{100 * self.difference:>4.0f} {100 * self.wrong:>6.1f} {100 * self.covered:>7.1f} {100 * self.called:>6.0f} "
            f"{100 * self.too_noisy:>5.0f} {100 * self.half_width:>7.1f} {self.seconds:>5.1f}"
        )


HEADER = (
    f"{'estimator':<25} {'noise':<21} {'m':>2} {'s':>3} {'offsets %':>12} {'diff':>4} {'wrong%':>6} {'inside%':>7} "
    f"{'called':>6} {'noisy':>5} {'+-%':>7} {'took':>5}"
)
"""m: references. s: budget. diff: percent. wrong: called against the truth. inside: truth in the interval. +-: half width."""


def conclude(rows: Sequence[ModelRow]) -> Conclusion:
    """No lines, because the rows are complete. Sound: no row has a fault."""
    return Conclusion([], not any(row.fault for row in rows))


async def measure(scope: Scope, tell: Tell, rows: list[ModelRow]) -> None:
    """Makes three tables.

    They show all estimators on every noise, then the used one by references and offsets, then the used one by
    differences.
    """
    runs = scope.repetitions or RUNS
    for title, part in (
        ("identical code, every estimator", estimators(runs)),
        ("identical code, by references and offsets", offsets(runs)),
        ("a real difference", differences(runs)),
    ):
        tell(f"\n{title}\n{HEADER}")
        for row in part:
            tell(row.text())
            rows.append(row)
            await asyncio.sleep(0)  # here it can be interrupted


def estimators(runs: int, names: Sequence[str] = tuple(ESTIMATORS)) -> Iterator[ModelRow]:
    """Identical code on every noise, with world offsets as measured on machines."""
    for noise in MODELS:
        yield from _rows("estimators", noise, OFFSETS[noise.clock], USUAL, runs, names)


def offsets(runs: int) -> Iterator[ModelRow]:
    """Identical code on two noises, by references, budget and offset."""
    for noise in (VIRTUAL_CORES, QUIET_DEVICE):
        for references in REFERENCES:
            for budget_s in BUDGETS:
                for offset in ALL_OFFSETS:
                    yield from _rows("offsets", noise, (offset,), references, runs, (USED,), budget_s)


def differences(runs: int) -> Iterator[ModelRow]:
    """Real differences on every noise with typical offsets."""
    for noise in MODELS:
        for difference in DIFFERENCES:
            offset = (TYPICAL[noise.clock],)
            yield from _rows("differences", noise, offset, USUAL, runs, (USED,), difference=difference)


def _rows(
    table: str,
    noise: Noise,
    spreads: tuple[float, ...],
    references: int,
    runs: int,
    names: Sequence[str],
    budget_s: float = 1.0,
    difference: float = 0.0,
) -> Iterator[ModelRow]:
    cases = [Case(noise, spread, references, budget_s, difference) for spread in spreads]
    scores = [trial(case, runs, names, seed=seed) for seed, case in enumerate(cases)]
    for name in names:
        found: list[TrialScore] = [score[name] for score in scores]
        yield ModelRow(
            table=table,
            estimator=name,
            noise=noise.name,
            references=references,
            budget_s=budget_s,
            offsets=spreads,
            difference=difference,
            runs=runs * len(cases),
            **{
                field: sum(getattr(score, field) for score in found) / len(found)
                for field in ("wrong", "covered", "called", "too_noisy", "half_width", "seconds")
            },
        )
