"""Inputs of a collective for each rank of a test, and the exact outputs."""

import time

import torch
import torch.distributed as dist


def drawn(shape: tuple[int, ...], dtype: torch.dtype, rank: int, turn: int) -> torch.Tensor:
    """The input of a rank in a turn. Every rank can draw the inputs of all ranks."""
    generator = torch.Generator().manual_seed(1000 * turn + rank)
    return torch.randn(shape, generator=generator).to(dtype)


def expected_result(collective: str, everybody: torch.Tensor, rank: int) -> torch.Tensor:
    """The output of a collective on a rank. everybody: (W, ...), the inputs of all ranks."""
    world = len(everybody)
    match collective:
        case "all_reduce":
            return everybody.sum(0)
        case "all_gather":
            return everybody
        case "reduce_scatter":
            return everybody.sum(0).chunk(world)[rank]
        case _:
            return torch.cat([part.chunk(world)[rank] for part in everybody])


def check_calls(kernel, collective, shape, dtype, rank, world, turns):
    """Compares a collective kernel's results in so many calls. An output is valid until this rank's next call."""
    kept = None
    for turn in range(turns):
        everybody = [drawn(shape, dtype, source, turn) for source in range(world)]
        x = everybody[rank].clone()
        if turn % world == rank:
            time.sleep(0.002)  # the other ranks are in their next call
        if kept is not None:
            assert torch.equal(*kept), (kernel.__name__, turn)
        got = kernel.solution(x)
        expected = expected_result(collective, torch.stack(everybody).double(), rank)
        where = (kernel.__name__, dtype, shape, turn)
        assert (got.dtype, got.shape) == (dtype, expected.shape), where
        assert torch.equal(x, everybody[rank]), where
        kept = got, got.clone()
        if collective in ("all_gather", "all_to_all"):
            assert torch.equal(got.double(), expected), where
        error = (got.double() - expected).abs() / (expected.abs() + 1)
        assert error.max() < (2**-8 if dtype is torch.bfloat16 else 1e-6), where


def check_products(kernel, dtype, sizes, rank, world, turns):
    """Compares sums of products over ranks in so many calls, and the last one with the other ranks'. sizes: m, n, k."""
    m, n, k = sizes
    for turn in range(turns):
        left = [drawn((m, k), dtype, source, turn) for source in range(world)]
        right = [drawn((k, n), dtype, source + 500, turn) for source in range(world)]
        got = kernel.solution(left[rank], right[rank])
        exact = sum(a.double() @ b.double() for a, b in zip(left, right, strict=True))
        where = (kernel.__name__, dtype, sizes)
        assert (got.dtype, got.shape) == (dtype, (m, n)), where
        assert (got - exact).norm() / exact.norm() < (0.01 if dtype is torch.bfloat16 else 1e-5), where
    every = [torch.empty_like(got) for _ in range(world)]
    dist.all_gather(every, got.contiguous())
    assert all(torch.equal(other, got) for other in every), f"{where}: ranks differ"
