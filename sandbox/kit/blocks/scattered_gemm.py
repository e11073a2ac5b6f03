"""Row blocks of a product, summed over the ranks. Copy engines send partial products to their owners, which add them.

    from sandbox.kit.blocks.scattered_gemm import scattered_product

    own = team.out((rows, columns), dtype, "own", ring=2)
    more = arrivals(own, team)
    scattered_product(a, b, team.peers(own), more, team)   # a [W, M/W, K/W], b [K/W, N]: own becomes row block r of the sum

The owner's product of a chunk of rows comes last, and its float32 sum includes what has arrived, while the next chunk of the
others' rows is multiplied and sent. With two ranks no pass over the result is needed.
"""

from collections.abc import Callable, Sequence

import torch

from sandbox.kit import cuda
from sandbox.kit.blocks import cuda_text
from sandbox.kit.blocks.columns import kernel_for as column_kernels
from sandbox.kit.blocks.columns import stream_barrier
from sandbox.kit.blocks.side_stream import beside, join, mark
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(cuda_text("scattered_gemm"))
BLOCKS, THREADS = 128, 512
CHUNKS = 2
"""Chunks of a block of rows: one is sent while the next is multiplied."""
SLOT = 1000


def arrivals(own: torch.Tensor, team: Team) -> torch.Tensor | None:
    """The buffer in which partial products for `own` arrive, one of two in turn; None if they all arrive in `own`. Collective."""
    column_kernels(cuda.unit_of(own))  # before the ranks exchange: see `cuda.lazy`
    if team.world < 3:
        return None
    kernel_for(own.dtype)
    # Two buffers are enough: a rank writes in call e+2 only after all ranks have begun call e+1.
    return team.out((team.world - 2, *own.shape), own.dtype, "scattered: more", ring=2)


def scattered_product(
    a: torch.Tensor,
    b: torch.Tensor,
    owned: Sequence[torch.Tensor],
    more: torch.Tensor | None,
    team: Team,
    chunks: int = CHUNKS,
    complete: Callable[[slice], None] | None = None,
) -> None:
    """owned[r] becomes row block r of Σ_s a_s b_s on rank r. GPUs only; partial products are rounded to their dtype.

    a [W (owners), M/W, K/W], b [K/W, N]: this rank's own. owned: for each rank its block [M/W, N], contiguous, in its
    own memory, as this rank maps it; the next call must use other ones. more: the result of `arrivals`. chunks: chunks of a
    block. complete(rows): called for each chunk of the own block, when its product is queued on the current stream.
    Uses the team's signal slot SLOT. Collective.
    """
    others, (_, rows, _), columns, own = team.world - 1, a.shape, b.shape[1], owned[team.rank]
    rest = team.peers(more) if more is not None else []
    parts = [slice(rows * number // chunks, rows * (number + 1) // chunks) for number in range(chunks)]
    partial = a.new_empty((others, rows, columns))

    def finish(part: slice, here: torch.cuda.Event) -> None:
        join(here)  # these rows have arrived
        own[part].addmm_(a[team.rank, part], b)
        if complete is not None:
            complete(part)

    arrived = []
    for number, part in enumerate(parts):
        for away in range(1, team.world):  # in the order r+1, r+2, ..., so that no rank receives from two at a time
            owner = (team.rank + away) % team.world
            place = owned[owner] if away == 1 else rest[owner][away - 2]
            torch.mm(a[owner, part], b, out=partial[away - 1, part])
            with beside():
                place[part].copy_(partial[away - 1, part])
        with beside():
            stream_barrier(own, team, SLOT)
            if more is not None:
                _add(own[part], more[:, part], more.stride(0))
            arrived.append(mark())
        if number:
            finish(parts[number - 1], arrived[-2])
    finish(parts[-1], arrived[-1])


def _add(rows: torch.Tensor, more: torch.Tensor, apart: int) -> None:
    """Adds more[0], more[1], ... to rows. apart: elements between the beginnings of two of them."""
    blocks = min(max(-(-rows.nbytes // (16 * THREADS)), 1), BLOCKS)
    given = rows.data_ptr(), more.data_ptr(), rows.numel(), apart, more.shape[0]
    kernel_for(rows.dtype).add_arrived[blocks, THREADS](*given)
