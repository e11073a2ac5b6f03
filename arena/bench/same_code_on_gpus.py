"""The baseline against itself on GPUs, again and again: neither clock may call it faster, whatever the problem's kind."""

from collections import Counter

from arena.bench.gpu_runs import Planned, rows_of
from arena.bench.row import Row, Scope, Tell
from arena.bench.same_code import spread
from arena.store import BASELINE
from problems.catalogue import load_catalogue
from sandbox.events import Interval
from sandbox.verdict import Verdict

RUNS = 40
ROUNDS = 9
PROBLEMS = (1, 13, 31, 54, 60)
"""One collective; a product with one; a mixture of experts, which waits for the GPU; a ring of sends; transforms."""


async def measure(scope: Scope, tell: Tell) -> list[Row]:
    """`RUNS` runs of each problem at production size, two seconds each; then what they come to, a line a problem.

    Raises:
        MachineError: there are not that many GPUs, or nothing can be judged here.
    """
    catalogue = load_catalogue()
    problems = scope.problems or tuple(catalogue.find(str(number)) for number in PROBLEMS)
    planned = (Planned(problem, BASELINE) for problem in problems for _ in range(RUNS))
    rows = await rows_of(planned, scope.world, scope.rounds or ROUNDS, tell)
    for problem in problems:
        tell(summary([row for row in rows if row.id == problem.id]))
    return rows


def summary(rows: list[Row]) -> str:
    """What the runs of one problem come to: how often it was called what, and within what both clocks' medians lie."""
    outcomes = Counter(row.outcome for row in rows if row.verdict == Verdict.PASS)
    said = ", ".join(f"{outcomes[word]} {word}" for word in ("faster", "slower", "even", "too noisy"))
    text = f"{rows[0].id:02d} {rows[0].problem}: {sum(outcomes.values())} of {len(rows)} passed: {said}"
    for clock in ("call", "device"):
        found: list[Interval] = [
            interval for row in rows if row.speedup and (interval := getattr(row.speedup, clock)) is not None
        ]
        if found:
            least, most, inside = spread(found)
            text += f"; {clock} {least:.4f} to {most:.4f}, 1 inside {inside} of {len(found)} intervals"
    return text
