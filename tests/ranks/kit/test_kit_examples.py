"""Compares every example kernel with the exact result, in many calls at odd sizes."""

import importlib
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from exact_collectives import drawn, expected_result

import benchmarks.kernels

EXAMPLES = Path(benchmarks.kernels.__file__).parent
COLLECTIVES = {
    "allreduce_one_shot": "all_reduce",
    "allreduce_two_shot": "all_reduce",
    "allreduce_cpp": "all_reduce",
    "allgather_push": "all_gather",
    "alltoall_push": "all_to_all",
    "reducescatter": "reduce_scatter",
}
GEMMS = ["gemm_allreduce", "gemm_allreduce_cpp"]
TURNS = 7  # more turns than a ring has buffers


def run_collectives(rank: int, world: int) -> None:
    for example, collective in COLLECTIVES.items():
        kernel = importlib.import_module(f"benchmarks.kernels.{example}")
        for dtype, shape in ((torch.float32, (world * 3, 5)), (torch.bfloat16, (world, 64, 33))):
            for turn in range(TURNS):
                everybody = [drawn(shape, dtype, source, turn) for source in range(world)]
                x = everybody[rank].clone()
                got = kernel.solution(x)
                if turn % world == rank:
                    time.sleep(0.001)  # a late rank must still find the data sent to it
                expected = expected_result(collective, torch.stack(everybody).double(), rank)
                assert (example, got.dtype, got.shape) == (example, dtype, expected.shape)
                assert torch.equal(x, everybody[rank]), f"{example} changed its input"
                error = (got.double() - expected).abs() / (expected.abs() + 1)
                assert error.max() < (2**-8 if dtype is torch.bfloat16 else 1e-6), example


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_collective_examples(worlds, world):
    worlds.run(run_collectives, world)


def run_gemms(rank: int, world: int) -> None:
    for example in GEMMS:
        kernel = importlib.import_module(f"benchmarks.kernels.{example}")
        for dtype, (m, n, k) in ((torch.float32, (37, 29, 16)), (torch.bfloat16, (5, 3, 64))):
            for turn in range(TURNS):
                left = [drawn((m, k), dtype, source, turn) for source in range(world)]
                right = [drawn((k, n), dtype, source + 500, turn) for source in range(world)]
                got = kernel.solution(left[rank], right[rank])
                exact = sum(a.double() @ b.double() for a, b in zip(left, right, strict=True))
                assert got.dtype == dtype
                assert (got - exact).norm() / exact.norm() < (0.01 if dtype is torch.bfloat16 else 1e-5), example
        every = [torch.empty_like(got) for _ in range(world)]
        dist.all_gather(every, got.contiguous())
        assert all(torch.equal(other, got) for other in every), f"{example}: ranks differ"


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_gemm_examples(worlds, world):
    worlds.run(run_gemms, world)


def test_every_example_is_tested():
    names = {path.stem for path in EXAMPLES.glob("[!_]*.py")}
    on_gpus = {name for name in names if name.endswith(("_symm", "_triton"))}  # tests/gpu/ runs these
    assert names - on_gpus == set(COLLECTIVES) | set(GEMMS)
