"""House kernels on ranks that share one GPU by time slices: their code for several ranks, compared with the oracle.

Barriers are slow, but memory, flags and turns are the same as between GPUs. If a house kernel calls a torch.distributed
collective, its test is skipped and names the collective: NCCL refuses two ranks on one GPU.
"""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from playing_agent import RIGHT

import sandbox
from problems.catalogue import load_catalogue
from problems.specification import Problem

CATALOGUE = load_catalogue()
WORLDS = (2, 4)
TIMEOUT_S = 75.0
"""Time limit of a world: its start, compilation and all its calls."""
CASES = [
    (world, problem)
    for world in WORLDS  # outermost, so a session that is cut off has tested each problem once
    for problem in CATALOGUE.problems
    if problem.house_source and world in problem.worlds
]
LARGE = "LARGE = 16 << 20"
"""A line of house kernels: larger exchanges overlap products. No size of these tests is as large."""
BESIDE = [p for p in CATALOGUE.problems if p.house_source and LARGE in p.house_source]
ON_CPU = ("allreduce", "load_balancing_loss_fn", "tp_muon_orthogonalization")
BY_READING = """
from sandbox.kit import symm
def solution(tensor):
    peers = symm.peers(symm.stage(tensor))
    symm.barrier()
    total = peers[0].float()
    for peer in peers[1:]:
        total = total + peer
    return total.to(tensor.dtype)
"""
BY_PUSHING = (Path(sandbox.__path__[0]) / "kit" / "examples" / "allgather_push_cuda.py").read_text()
WRONG = {
    "reads before its peers have written": ("allreduce", BY_READING, "    symm.barrier()\n", ""),
    "reads a wrong peer": ("allreduce", BY_READING, "peers[1:]", "peers[:-1]"),
    "ends before its peers have written": ("allgather", BY_PUSHING, "px_barrier(px, blockIdx.x, epoch);", ""),
    "writes to a wrong place": ("allgather", BY_PUSHING, "+ px.rank * n;", "+ (px.world - 1 - px.rank) * n;"),
}
"""(problem, a correct kernel, the text to replace in it, the replacement)."""

Judged = Callable[[int, Problem, str, str], Future[list[Any]]]


@pytest.fixture(scope="module")
def judged(one_gpu: Any) -> Judged:
    """judged(world, problem, source, device): a future with the results of all ranks."""

    def run(world: int, problem: Problem, source: str, device: str) -> Future[list[Any]]:
        arguments = str(problem.folder), source, device
        found: Future[list[Any]] = one_gpu.run(one_gpu.ranks.agreement, world, *arguments, timeout_s=TIMEOUT_S)
        return found

    return run


@pytest.fixture(scope="module")
def ahead(judged: Judged, request: pytest.FixtureRequest) -> dict[tuple[int, str], Future[list[Any]]]:
    """Starts all selected cases in their order. Futures with their results, by world and slug."""
    chosen = [
        item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == "test_a_house_agrees_on_one_gpu"
    ]
    return {
        (each["world"], each["problem"].slug): judged(
            each["world"], each["problem"], each["problem"].house_source, "cuda"
        )
        for each in chosen
    }


def settle(found: list[Any]) -> None:
    """Fails if a rank found a fault. Skips, naming the collective, if calls ended at one."""
    faults = [fault for rank in found for fault in rank["faults"]]
    outputs = sum(rank["compared"] for rank in found)
    worst = max(rank["worst"] for rank in found)
    print(f"{outputs} outputs compared; the largest error is {worst:.3g} of what is allowed")
    assert not faults, "\n".join([f"{len(faults)} faults of {outputs} outputs", *faults[:8]])
    refused = {name: count for rank in found for name, count in rank["refused"].items()}
    assert outputs or refused
    if refused:
        calls = ", ".join(f"{count} calls of a rank end at {name}" for name, count in refused.items())
        pytest.skip(f"NCCL refuses ranks on one GPU: {calls}; {outputs} outputs of other calls are right")


def figures(one_gpu: Any, future: Future[list[Any]]) -> list[Any]:
    """The results of all ranks. Prints the output of the ranks if the world fails."""
    try:
        return future.result(timeout=110)
    except BaseException:
        print(one_gpu.printed())
        raise


def broken(name: str) -> tuple[Problem, str, str]:
    """(problem, a correct kernel, the same with a fault)."""
    slug, right, part, instead = WRONG[name]
    assert right.count(part) == 1
    return CATALOGUE.find(slug), right, right.replace(part, instead)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        *(pytest.param(name, "cuda", marks=pytest.mark.gpu) for name in WRONG),
        *(pytest.param(n, "cpu", marks=pytest.mark.slow) for n in WRONG if WRONG[n][1] is BY_READING),
    ],
)
def test_a_kernel_with_a_fault_is_found(one_gpu, judged, name, device):
    problem, right, wrong = broken(name)
    both = [judged(2, problem, source, device) for source in (right, wrong)]
    settle(figures(one_gpu, both[0]))
    found = figures(one_gpu, both[1])
    print([(len(rank["faults"]), *rank["faults"][:2]) for rank in found])
    assert any(rank["faults"] for rank in found)
    with pytest.raises(AssertionError, match="faults of"):
        settle(found)


@pytest.mark.gpu
def test_a_collective_of_torch_is_named(one_gpu, judged):
    found = figures(one_gpu, judged(2, CATALOGUE.find("allreduce"), RIGHT, "cuda"))
    assert all(rank["compared"] == 0 and set(rank["refused"]) == {"all_reduce"} for rank in found), found


@pytest.mark.gpu
@pytest.mark.parametrize(("world", "problem"), [pytest.param(*case, id=f"{case[0]}-{case[1].slug}") for case in CASES])
def test_a_house_agrees_on_one_gpu(one_gpu, ahead, world, problem):
    settle(figures(one_gpu, ahead[world, problem.slug]))


@pytest.mark.gpu
@pytest.mark.parametrize("problem", BESIDE, ids=lambda problem: problem.slug)
def test_a_house_agrees_when_exchanges_run_beside_products(one_gpu, judged, problem):
    source = problem.house_source.replace(LARGE, "LARGE = 0")
    settle(figures(one_gpu, judged(2, problem, source, "cuda")))


@pytest.mark.slow
@pytest.mark.parametrize("slug", ON_CPU)
def test_a_house_agrees_on_cpu_ranks(one_gpu, judged, slug):
    problem = CATALOGUE.find(slug)
    settle(figures(one_gpu, judged(2, problem, problem.house_source, "cpu")))


def test_refused_calls_are_skip_and_not_pass(capsys):
    right = {"compared": 3, "worst": 0.5, "faults": [], "refused": {}}
    settle([right, right])
    assert "6 outputs" in capsys.readouterr().out
    with pytest.raises(pytest.skip.Exception, match="2 calls of a rank end at all_reduce"):
        settle([right, right | {"refused": {"all_reduce": 2}}])
    with pytest.raises(AssertionError, match="1 faults"):
        settle([right | {"faults": ["off"]}, right | {"refused": {"all_reduce": 2}}])
    with pytest.raises(AssertionError):
        settle([right | {"compared": 0}])
