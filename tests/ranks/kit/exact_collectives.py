"""Inputs of a collective for each rank of a test, and the exact outputs."""

import torch


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
