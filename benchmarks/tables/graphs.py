"""A table of every baseline in a CUDA graph against itself as called.

It shows which ones can be captured, and the cost of launching.
"""

from arena.workspace.named_kernels import GRAPH
from benchmarks.rows import RunRow
from benchmarks.tables import gpu_runs
from benchmarks.tables.gpu_runs import measured, on_gpus
from benchmarks.tables.scope import Scope, Tell

ROUNDS = 5


conclude = gpu_runs.conclude


async def measure(scope: Scope, tell: Tell, rows: list[RunRow]) -> None:
    """Makes a run for each of the named problems, or for all, at production size: about five seconds each.

    Raises:
        MachineError: there are not enough GPUs, or nothing can be judged here.
    """
    planned = (on_gpus(problem, GRAPH, scope.world) for problem in scope.problems_or())
    await measured(planned, scope.repetitions or ROUNDS, tell, rows)
