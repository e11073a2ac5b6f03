"""A table of the baseline against itself on CPU ranks, quiet or beside a busy process on every core."""

from arena.setting_choice import Choice
from benchmarks.rows import RunRow
from benchmarks.tables import same_code
from benchmarks.tables.scope import Scope, Tell
from problems.catalogue import load_catalogue

RUNS = 40
PRESET, WORLD = "tiny", 2
PROBLEMS = (13, 9, 31, 69)
"""A product with a collective; a backward pass with two small ones; a mixture of experts; a ranking with gathered scores."""

conclude = same_code.conclude


async def measure(scope: Scope, tell: Tell, rows: list[RunRow]) -> None:
    """Makes `RUNS` runs of each problem at the default budget: two to five seconds each.

    Raises:
        MachineError: nothing can be judged here.
    """
    catalogue = load_catalogue()
    problems = scope.problems or tuple(catalogue.find(str(number)) for number in PROBLEMS)
    choice = Choice(preset=scope.preset or PRESET, world=scope.world or WORLD, device="cpu")
    await same_code.runs_of(scope, problems, scope.repetitions or RUNS, choice, tell, rows)
