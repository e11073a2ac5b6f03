"""A table of the kit's examples over its own symmetric memory and over every backend, beside the house kernel."""

from collections.abc import Iterator

from arena.machine.facts import visible_gpus
from arena.workspace.named_kernels import HOUSE
from benchmarks.rows import PlannedRun, RunRow
from benchmarks.tables import gpu_runs
from benchmarks.tables.gpu_runs import measured, on_gpus
from benchmarks.tables.scope import Scope, Tell
from problems.catalogue import load_catalogue
from problems.specification import PRESETS, Problem

ROUNDS = 5
KERNELS = {
    1: ("allreduce_one_shot_cuda", "allreduce_two_shot_cuda", "allreduce_nccl", "allreduce_shmem"),
    2: ("allgather_push_cuda", "allgather_nccl", "allgather_shmem"),
    8: ("alltoall_push_cuda", "alltoall_nccl", "alltoall_shmem"),
}
"""Examples by problem. The first ones of each use the kit's own memory."""

conclude = gpu_runs.conclude


async def measure(scope: Scope, tell: Tell, rows: list[RunRow]) -> None:
    """Makes 39 runs, about three minutes on two H100.

    Raises:
        MachineError: there are not enough GPUs, or nothing can be judged here.
    """
    catalogue = load_catalogue()
    world = scope.world or max(visible_gpus(), 1)
    planned = (run for number in KERNELS for run in plan(catalogue.find(str(number)), world, scope.preset))
    await measured(planned, scope.repetitions or ROUNDS, tell, rows)


def plan(problem: Problem, world: int, preset: str | None) -> Iterator[PlannedRun]:
    """The runs of one problem. preset: None for all."""
    for each in PRESETS if preset is None else (preset,):
        for kernel in (HOUSE, *KERNELS[problem.id]):
            yield on_gpus(problem, kernel, world, each)
