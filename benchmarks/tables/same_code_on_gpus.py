"""A table of the baseline against itself on GPUs: all problems, or those named."""

from arena.setting_choice import Choice
from benchmarks.rows import RunRow
from benchmarks.tables import same_code
from benchmarks.tables.scope import Scope, Tell
from problems.catalogue import load_catalogue

RUNS = 3
PRESET = "production"

conclude = same_code.conclude


async def measure(scope: Scope, tell: Tell, rows: list[RunRow]) -> None:
    """Makes `RUNS` runs of each problem at the default budget: about six seconds each.

    Raises:
        MachineError: there are not enough GPUs, or nothing can be judged here.
    """
    problems = scope.problems or load_catalogue().problems
    choice = Choice(preset=scope.preset or PRESET, world=scope.world, device="cuda")
    await same_code.runs_of(scope, problems, scope.repetitions or RUNS, choice, tell, rows)
