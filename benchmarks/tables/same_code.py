"""The baseline against itself, many times for each of some problems.

Counts how often identical code is called faster or slower, and how often the interval contains 1. CPU ranks and GPUs alike.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from arena.runs.engine import temporary_engine
from arena.setting_choice import Choice
from arena.workspace.named_kernels import BASELINE
from benchmarks.busy_cores import load
from benchmarks.rows import REFUSED, PlannedRun, RunRow
from benchmarks.tables.gpu_runs import SAME_CODE_TABLE, rows_of
from benchmarks.tables.scope import Conclusion, Scope, Tell
from sandbox.protocol.events import Interval
from sandbox.protocol.verdict import Verdict
from sandbox.timing.interval import half_width, outcome

CLOCKS = ("call", "device")
WORDS = ("faster", "slower", "even", "too noisy")
WRONG = ("faster", "slower")
WRONG_SHARE = 0.01
"""Largest share of the runs in which identical code may be called faster or slower."""
NOISY_SHARE = 0.5
"""A problem is too noisy if a larger share of its runs is."""


@dataclass(frozen=True)
class Usual:
    """What is measured unless something else is requested. problems: all if empty."""

    runs: int
    preset: str
    world: int | None = None
    problems: tuple[int, ...] = ()


USUAL = {"cpu": Usual(40, "tiny", 2, (13, 9, 31, 69)), "cuda": Usual(3, "production")}
"""By device. On CPU ranks: a product with a collective; a backward pass with two small ones; a mixture of experts; a
ranking with gathered scores."""


async def measure(scope: Scope, tell: Tell, rows: list[RunRow]) -> None:
    """Makes some runs of each problem at the default budget, one problem after another: two to six seconds each.

    Each is of another text, as a person's saves are.

    Raises:
        MachineError: there are not enough GPUs, or nothing can be judged here.
    """
    usual = USUAL[scope.device or "cpu"]
    choice = Choice(preset=scope.preset or usual.preset, world=scope.world or usual.world, device=scope.device)
    runs = range(scope.repetitions or usual.runs)
    problems = scope.problems_or(usual.problems)
    texts = ((problem, f"{problem.baseline_source}\n# {run}\n") for problem in problems for run in runs)
    planned = (PlannedRun(problem, BASELINE, choice, source=text) for problem, text in texts)
    async with load(scope.loaded), temporary_engine() as engine:
        await rows_of(engine, planned, None, tell, rows, SAME_CODE_TABLE)


def conclude(rows: Sequence[RunRow]) -> Conclusion:
    """A line for each problem, then the totals.

    Sound: every run passed or was refused, and at most 1 % of them (or one) were called faster or slower.
    """
    problems = list(dict.fromkeys(row.id for row in rows))
    by_problem = [[row for row in rows if row.id == problem] for problem in problems]
    lines = [f"{some[0].id:02d} {some[0].problem}: {summary(some)}" for some in by_problem]
    if rows:
        lines.append(f"all: {summary(rows)}")
        lines += [f"all, {line}" for line in wrong_by_clock(rows)]
        noisy = [some[0].id for some in by_problem if is_too_noisy(some)]
        named = f": {', '.join(map(str, noisy))}" if noisy else ""
        lines.append(f"too noisy in more than half of the runs: {len(noisy)} of {len(problems)} problems{named}")
    wrong = sum(row.outcome in WRONG for row in rows)
    passed = all(row.verdict in (Verdict.PASS, REFUSED) for row in rows)
    return Conclusion(lines, passed and wrong <= max(1, WRONG_SHARE * len(rows)))


def summary(rows: Sequence[RunRow]) -> str:
    """Runs of identical code in a line.

    It has the outcomes, and by clock the medians' range and median, how many intervals contain 1, and the median half width.
    """
    passed = [row for row in rows if row.verdict == Verdict.PASS]
    outcomes = Counter(row.outcome for row in passed)
    said = ", ".join(f"{outcomes[word]} {word}" for word in WORDS)
    text = f"{len(passed)} of {len(rows)} passed: {said}"
    for clock in CLOCKS:
        found = intervals(passed, clock)
        if found:
            least, most, inside = spread(found)
            middle = median(interval.median for interval in found)
            width = 100 * median(half_width(interval) for interval in found)
            text += f"; {clock} {least:.4f} to {most:.4f}, median {middle:.4f}, 1 inside {inside} of {len(found)}"
            text += f" intervals, ±{width:.3g} %"
    return text


def wrong_by_clock(rows: Sequence[RunRow]) -> list[str]:
    """For each clock: the shares of runs by outcome, and of intervals that contain 1."""
    lines = []
    for clock in CLOCKS:
        found = intervals(rows, clock)
        if found:
            outcomes = Counter(map(outcome, found))
            shares = ", ".join(f"{100 * outcomes[word] / len(found):.1f} % {word}" for word in WORDS)
            inside = 100 * spread(found)[2] / len(found)
            lines.append(f"{clock}: {shares}; 1 inside {inside:.1f} % of {len(found)} intervals")
    return lines


def intervals(rows: Sequence[RunRow], clock: str) -> list[Interval]:
    """The intervals by one clock."""
    return [found for row in rows if row.speedup and (found := getattr(row.speedup, clock)) is not None]


def spread(found: Sequence[Interval]) -> tuple[float, float, int]:
    """The smallest median, the largest one, and how many intervals contain 1."""
    medians = [interval.median for interval in found]
    return min(medians), max(medians), sum(interval.low <= 1.0 <= interval.high for interval in found)


def is_too_noisy(rows: Sequence[RunRow]) -> bool:
    """Whether more than half of a problem's passed runs were too noisy."""
    passed = [row for row in rows if row.verdict == Verdict.PASS]
    return sum(row.outcome == "too noisy" for row in passed) > NOISY_SHARE * len(passed)
