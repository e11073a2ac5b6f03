"""Every baseline in a CUDA graph, against itself as called: which can be captured at all, and what launching had cost."""

from arena.bench.gpu_runs import Planned, rows_of
from arena.bench.row import Row, Scope, Tell
from arena.yardsticks import GRAPH
from problems.catalogue import load_catalogue

ROUNDS = 5


async def measure(scope: Scope, tell: Tell) -> list[Row]:
    """A run for each of the problems asked for, or for all of them, at production size: about five seconds each.

    Raises:
        MachineError: there are not that many GPUs, or nothing can be judged here.
    """
    problems = scope.problems or load_catalogue().problems
    return await rows_of(
        (Planned(problem, GRAPH) for problem in problems), scope.world, scope.rounds or ROUNDS, tell
    )
