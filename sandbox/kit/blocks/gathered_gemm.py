"""Product of a matrix whose columns are split over the ranks: gathers rows by copy engine while others are multiplied.

    from sandbox.kit.blocks.gathered_gemm import gathered_product

    c = gathered_product(a_local, b, symm.connect(), 16 << 20)     # [M, K/W], [K, N] -> [M, N]

Chunks are rows, not parts of K: each product sums over all of K in float32 and rounds once.
"""

import torch

from sandbox.kit.blocks.columns import copy_columns, kernels, push_columns, stream_barrier
from sandbox.kit.blocks.side_stream import beside, join
from sandbox.kit.symmetric_memory.team import Team

CHUNKS = (2, 6, 8)
"""Rows of the products, in sixteenths. The first is small, because no product runs during its transfer."""
SLOT = 1000


def gathered_product(a_local: torch.Tensor, b: torch.Tensor, team: Team, large: int) -> torch.Tensor:
    """All ranks' a_local [M, K/W], side by side, times this rank's b [K, N] -> [M, N]. Collective.

    large: from this number of bytes of a_local on, rows are gathered during products. Any dtype with elements of 2 or 4
    bytes. Uses the team's signal slots 0 to 127 and SLOT.
    """
    x, rows = a_local.contiguous(), a_local.shape[0]
    if x.is_cuda:
        kernels()  # before the ranks synchronise, because a rank that waits in a kernel traps after 2 s
    # Two buffers are enough: a rank writes in call e+2 only after all ranks have begun call e+1.
    a = team.out((rows, team.world * x.shape[1]), x.dtype, "gathered", ring=2)
    if not a.is_cuda or team.world == 1 or x.nbytes < large:
        push_columns(x, a, team)
        return a @ b
    product = x.new_empty((rows, b.shape[1]))
    edges = [rows * sum(CHUNKS[:number]) // sum(CHUNKS) for number in range(len(CHUNKS) + 1)]

    def gather(number: int) -> None:
        part = slice(edges[number], edges[number + 1])
        with beside():
            copy_columns(x[part], a[part], team)
            stream_barrier(a, team, SLOT)

    gather(0)
    for number in range(len(CHUNKS)):
        join()  # this chunk has been gathered
        if number + 1 < len(CHUNKS):
            gather(number + 1)
        part = slice(edges[number], edges[number + 1])
        torch.mm(a[part], b, out=product[part])
    return product
