"""Joins the columns of all ranks side by side on every rank, by one launch, or by copy engines during a product.

    from sandbox.kit import cuda, symm
    from sandbox.kit.blocks.columns import copy_columns, push_columns, stream_barrier

    result = symm.out((rows, world * width), dtype, "joined", ring=2)
    push_columns(x, result, symm.connect())              # x [rows, width]; complete when the launch ends

    copy_columns(x[:top], result[:top], team)            # in parts: multiprocessors stay free,
    stream_barrier(result, team, slot)                   # and the parts of all ranks have arrived here

    c = gathered_product(a_local, b, team)               # [M, K/W], [K, N] -> [M, N]: gathers rows while others are multiplied

The result of call e is written again in call e+2. With a `stream_barrier` in every call, no rank reads it any more by then.
"""

import torch

from sandbox.kit import cuda
from sandbox.kit.blocks import cuda_text
from sandbox.kit.blocks.side_stream import beside, join
from sandbox.kit.recorded import recorded
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(cuda_text("columns"))
BLOCKS, THREADS = 128, 512
_DEVICE_TO_DEVICE = 3  # cudaMemcpyDeviceToDevice


def own_columns(result: torch.Tensor, team: Team, width: int | None = None, first: int | None = None) -> torch.Tensor:
    """This rank's columns of a matrix: an equal share of them, or `width` columns from `first` on."""
    width = result.shape[1] // team.world if width is None else width
    start = team.rank * width if first is None else first
    return result[:, start : start + width]


def push_columns(
    x: torch.Tensor,
    result: torch.Tensor,
    team: Team,
    first: int | None = None,
    widest: int | None = None,
    most_blocks: int = BLOCKS,
) -> None:
    """Stores x [rows, width] as this rank's columns of `result` at all ranks, and waits for theirs.

    x: elements of 2, 4 or 8 bytes that are adjacent within a row; it may be this rank's columns of the result themselves.
    result: symmetric, contiguous. first: this rank's first column; by default all ranks share the columns equally.
    widest: columns of the rank that has most (by default this one's). most_blocks: fewer leave multiprocessors to other kernels.
    Uses the team's signal slots 0 to BLOCKS - 1. Collective.
    """
    rows, width = x.shape
    if not result.is_cuda:
        copy_columns(x, result, team, first)
        team.barrier()
        return
    mine = own_columns(result, team, width, first)
    unit = cuda.unit_of(result)
    words, each = -(-(widest or width) * result.element_size() // 16), result.element_size() // unit.itemsize
    blocks = min(max(-(-rows * words // THREADS), 1), most_blocks, BLOCKS)
    sizes = rows, width * each, x.stride(0) * each, result.stride(0) * each
    kernel_for(unit).push[blocks, THREADS](team.px, x.data_ptr(), mine.data_ptr(), *sizes)


def copy_columns(x: torch.Tensor, result: torch.Tensor, team: Team, first: int | None = None) -> None:
    """Does the same by copy engines, on the current stream, for some rows of a result, without a wait (see `stream_barrier`)."""
    if not x.numel():
        return
    places = team.peers(own_columns(result, team, x.shape[1], first))
    for peer in (*team.order()[1:], team.rank):
        if places[peer].data_ptr() != x.data_ptr():
            copy_rows(places[peer], x)


def copy_rows(to: torch.Tensor, source: torch.Tensor) -> None:
    """Copies a matrix, whose rows need not be adjacent, by a copy engine of the GPU, on the current stream."""
    if to.device.type != "cuda":
        to.copy_(source)
        return
    from cupy.cuda import runtime

    each, (rows, width) = to.element_size(), to.shape
    if to.numel():
        pitches = (max(to.stride(0), width) * each, max(source.stride(0), width) * each)
        stream = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())
        runtime.memcpy2DAsync(
            to.data_ptr(), pitches[0], source.data_ptr(), pitches[1], width * each, rows, _DEVICE_TO_DEVICE, stream
        )


def stream_barrier(result: torch.Tensor, team: Team, slot: int) -> None:
    """A barrier of the ranks' current streams: all writes that were queued before it arrive before later work begins.

    result: the written tensor, or any tensor of the same device; slot: a signal slot that only this call uses.
    Collective.
    """
    if not result.is_cuda:
        team.barrier()
        return
    kernel_for(cuda.unit_of(result)).barrier_of_all[1, 32](team.px, slot)


CHUNKS = (2, 6, 8)
"""Rows of the products, in sixteenths. The first is small, because no product runs during its transfer."""
SLOT = 1000


def gathered_product(a_local: torch.Tensor, b: torch.Tensor, team: Team, large: int = 16 << 20) -> torch.Tensor:
    """All ranks' a_local [M, K/W], side by side, times this rank's b [K, N] -> [M, N]. Collective.

    large: from this number of bytes of a_local on, rows are gathered during products. Any dtype with elements of 2 or 4
    bytes. Uses the team's signal slots 0 to 127 and SLOT.
    """
    x, rows = a_local.contiguous(), a_local.shape[0]
    if x.is_cuda:
        kernel_for(cuda.unit_of(x))  # before the ranks exchange: see `cuda.lazy`
    # Two buffers are enough: a rank writes in call e+2 only after all ranks have begun call e+1.
    a = team.out((rows, team.world * x.shape[1]), x.dtype, "gathered", ring=2)
    product = x.new_empty((rows, b.shape[1]))
    _write_gathered(x, b, a, product, team, large)
    return product


@recorded
def _write_gathered(
    x: torch.Tensor, b: torch.Tensor, a: torch.Tensor, product: torch.Tensor, team: Team, large: int
) -> None:
    if not a.is_cuda or team.world == 1 or x.nbytes < large:
        push_columns(x, a, team)
        torch.mm(a, b, out=product)
        return
    rows = x.shape[0]
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
