"""Every example kernel against torch.distributed, called often, on odd sizes."""

import importlib
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import sandbox.kit

EXAMPLES = Path(sandbox.kit.__file__).parent / "examples"
COLLECTIVES = {
    "allreduce_one_shot": "all_reduce",
    "allreduce_two_shot": "all_reduce",
    "allreduce_cpp": "all_reduce",
    "allgather_push": "all_gather",
    "alltoall_push": "all_to_all",
    "reducescatter": "reduce_scatter",
}
GEMMS = ["gemm_allreduce", "gemm_allreduce_cpp"]


def _expected(collective: str, x: torch.Tensor, world: int) -> torch.Tensor:
    """The collective's result computed in float64 from everybody's tensor."""
    gathered = [torch.empty_like(x, dtype=torch.float64) for _ in range(world)]
    dist.all_gather(gathered, x.double())
    everything = torch.stack(gathered)
    rank = dist.get_rank()
    match collective:
        case "all_reduce":
            return everything.sum(0)
        case "all_gather":
            return everything
        case "reduce_scatter":
            return everything.sum(0).chunk(world)[rank]
        case _:
            return torch.stack([part.chunk(world)[rank] for part in everything]).view(x.shape)


def run_collective(rank: int, world: int, example: str, collective: str) -> None:
    kernel = importlib.import_module(f"sandbox.kit.examples.{example}")
    generator = torch.Generator().manual_seed(100 + rank)
    for dtype in (torch.float32, torch.bfloat16):
        for shape in ((world * 3, 5), (world, 64, 33)):
            for turn in range(12):
                x = torch.randn(shape, generator=generator).to(dtype)
                kept = x.clone()
                got = kernel.solution(x)
                if turn % 4 == rank % 4:
                    time.sleep(0.001)
                expected = _expected(collective, x, world)
                assert got.dtype == dtype
                assert got.shape == expected.shape
                assert torch.equal(x, kept), "the input was changed"
                tolerance = 2**-8 if dtype is torch.bfloat16 else 1e-5
                torch.testing.assert_close(got.double(), expected, rtol=tolerance, atol=1e-5)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("example", COLLECTIVES)
def test_collective_examples(worlds, example, world):
    worlds.run(run_collective, world, example, COLLECTIVES[example])


def run_gemm(rank: int, world: int, example: str) -> None:
    kernel = importlib.import_module(f"sandbox.kit.examples.{example}")
    generator = torch.Generator().manual_seed(100 + rank)
    for dtype in (torch.float32, torch.bfloat16):
        for m, n, k in ((37, 29, 16), (5, 3, 64)):
            for _ in range(5):
                a = torch.randn(m, k, generator=generator).to(dtype)
                b = torch.randn(k, n, generator=generator).to(dtype)
                got = kernel.solution(a, b)
                expected = a.double() @ b.double()
                dist.all_reduce(expected)
                error = (got.double() - expected).norm() / expected.norm()
                assert error < (0.01 if dtype is torch.bfloat16 else 1e-5)
                every = [torch.empty_like(got) for _ in range(world)]
                dist.all_gather(every, got.contiguous())
                assert all(torch.equal(other, got) for other in every), "ranks differ"


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("example", GEMMS)
def test_gemm_examples(worlds, example, world):
    worlds.run(run_gemm, world, example)


def test_every_example_is_tested():
    listed = {path.stem for path in EXAMPLES.glob("*.py") if not path.stem.endswith("_cuda")} - {"__init__"}
    assert listed == set(COLLECTIVES) | set(GEMMS)
