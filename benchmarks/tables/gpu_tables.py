"""The runs of three tables of kernels on GPUs: collectives, the kit's backends, and baselines in a CUDA graph."""

from collections.abc import Iterator, Mapping, Sequence

from arena.errors import UsageError
from arena.machine.facts import visible_gpus
from arena.setting_choice import Choice
from arena.workspace.named_kernels import COPY_ENGINE, GRAPH, HOUSE, WINDOWS
from benchmarks.rows import PlannedRun, RunRow
from benchmarks.tables import gpu_runs
from benchmarks.tables.scope import Scope, Tell
from problems.catalogue import load_catalogue
from problems.specification import DTYPE_BYTES, PRESETS, Problem

ROUNDS = {"collectives": 9, "backends": 5, "graphs": 5}
"""Rounds of a run, by table."""
KB, MB = 1 << 10, 1 << 20
SIZES = {"2 KB": 2 * KB, "64 KB": 64 * KB, "2 MB": 2 * MB, "32 MB": 32 * MB, "256 MB": 256 * MB}
"""Bytes of the whole array, as nccl-tests counts them: for an all-reduce the sum, else what all ranks hold together or
one rank receives."""
SMALL, LARGE, THREE = ("2 KB", "64 KB", "2 MB"), ("2 MB", "32 MB", "256 MB"), ("2 KB", "2 MB", "256 MB")
COLUMNS = 8192

KERNELS: dict[int, dict[str, Sequence[str]]] = {
    1: {
        GRAPH: THREE,
        WINDOWS: ("64 KB", *THREE),
        "allreduce_one_shot_cuda": SMALL,
        "allreduce_two_shot_cuda": LARGE,
        "allreduce_one_shot_symm": ("2 KB",),
        "allreduce_two_shot_symm": ("2 MB", "256 MB"),
    },
    2: {
        GRAPH: ("2 KB",),
        WINDOWS: ("2 KB", "256 MB"),
        COPY_ENGINE: ("256 MB",),
        "allgather_push_cuda": THREE,
        "allgather_symm": ("256 MB",),
    },
    7: {GRAPH: ("2 KB",), WINDOWS: ("2 KB", "256 MB"), "reducescatter_cuda": THREE, "reducescatter_symm": ("256 MB",)},
    8: {GRAPH: ("2 KB",), WINDOWS: ("256 MB",), COPY_ENGINE: ("256 MB",), "alltoall_push_cuda": THREE},
}
"""The sizes at which each kernel is run. A run takes about five seconds, so only informative sizes are listed."""
GEMM = 13
GEMM_KERNELS = (GRAPH, HOUSE)

EXAMPLES = {
    1: ("allreduce_one_shot_cuda", "allreduce_two_shot_cuda", "allreduce_nccl", "allreduce_shmem"),
    2: ("allgather_push_cuda", "allgather_nccl", "allgather_shmem"),
    8: ("alltoall_push_cuda", "alltoall_nccl", "alltoall_shmem"),
}
"""The kit's examples by problem. The first ones of each use the kit's own memory."""


conclude = gpu_runs.conclude


async def measure(scope: Scope, tell: Tell, rows: list[RunRow]) -> None:
    """Makes the runs of the scope's table, about five seconds each. scope.problems: of `collectives`, some of 1, 2, 7, 8 and 13.

    Raises:
        UsageError: another problem was named.
        MachineError: there are not enough GPUs, or nothing can be judged here.
    """
    world = scope.world or max(visible_gpus(), 1)
    planned = {"collectives": collectives, "backends": backends, "graphs": graphs}[scope.table](scope, world)
    await gpu_runs.measured(planned, scope.repetitions or ROUNDS[scope.table], tell, rows)


def graphs(scope: Scope, world: int) -> Iterator[PlannedRun]:
    """Every baseline in a CUDA graph, or those of the named problems: which can be captured, and the cost of launching."""
    for problem in scope.problems_or():
        yield on_gpus(problem, GRAPH, scope.world)  # not every problem allows all GPUs


def backends(scope: Scope, world: int) -> Iterator[PlannedRun]:
    """The kit's examples over its own symmetric memory and over every backend, beside the house kernel."""
    for number, examples in EXAMPLES.items():
        for preset in PRESETS if scope.preset is None else (scope.preset,):
            for kernel in (HOUSE, *examples):
                yield on_gpus(load_catalogue().find(str(number)), kernel, world, preset)


def collectives(scope: Scope, world: int) -> Iterator[PlannedRun]:
    """Plain collectives from 2 KB to 256 MB and GEMM + all-reduce: baseline variants, torch's operations, the kit's kernels."""
    known = (*KERNELS, GEMM)
    for problem in scope.problems:
        if problem.id not in known:
            raise UsageError(
                f"{problem.id} {problem.slug} is not in this table", f"it has {', '.join(map(str, known))}"
            )
    for problem in scope.problems_or(known):
        yield from plan(problem, world)


def plan(problem: Problem, world: int) -> Iterator[PlannedRun]:
    """The runs of one problem, ordered by size."""
    if problem.id == GEMM:
        for preset in ("paper", "production"):
            for kernel in GEMM_KERNELS:
                yield on_gpus(problem, kernel, world, preset)
        return
    for size in SIZES:
        for kernel, sizes in KERNELS[problem.id].items():
            if size in sizes:
                sizes_there = shape(problem, SIZES[size], world)
                yield on_gpus(problem, kernel, world, sizes=sizes_there, size=size)


def shape(problem: Problem, size: int, world: int) -> dict[str, int]:
    """M and N for a whole array of `size` bytes in the problem's first dtype, or a little less if it does not divide.

    An all-reduce has M x N elements in all, the others W x M x N.
    """
    parts = 1 if problem.collectives[0] == "all_reduce" else world
    elements = max(size // (parts * DTYPE_BYTES[problem.dtypes[0]]), 1)
    columns = min(COLUMNS, 1 << max((elements.bit_length() - 1) // 2 + 1, 0), elements)
    return {"M": elements // columns, "N": columns}


def on_gpus(
    problem: Problem,
    kernel: str,
    world: int | None,
    preset: str = "production",
    sizes: Mapping[str, int] | None = None,
    size: str = "",
) -> PlannedRun:
    """A run on `world` GPUs; None: on as many as the problem allows. size: the size in words."""
    choice = Choice(preset=preset, world=world, device="cuda", sizes=dict(sizes or {}))
    return PlannedRun(problem, kernel, choice, size)
