"""Joins the columns of all ranks side by side on every rank, by one launch, or by copy engines during a product.

    from sandbox.kit import symm
    from sandbox.kit.blocks.columns import copy_columns, push_columns, stream_barrier

    result = symm.out((rows, world * width), dtype, "joined", ring=2)
    push_columns(x, result, symm.connect())              # x [rows, width]; complete when the launch ends

    copy_columns(x[:top], result[:top], team)            # in parts: multiprocessors stay free,
    stream_barrier(result, team, slot)                   # and the parts of all ranks have arrived here

    c = gathered_product(a_local, b, team, 16 << 20)     # [M, K/W], [K, N] -> [M, N]: gathers rows while others are multiplied

The result of call e is written again in call e+2. With a `stream_barrier` in every call, no rank reads it any more by then.
"""

import torch

from sandbox.kit import cuda
from sandbox.kit.blocks import cuda_text
from sandbox.kit.blocks.side_stream import beside, join
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(cuda_text("columns"))
BLOCKS, THREADS = 128, 512
_DEVICE_TO_DEVICE = 3  # cudaMemcpyDeviceToDevice


def own_columns(result: torch.Tensor, team: Team) -> torch.Tensor:
    """This rank's columns of a matrix whose columns the ranks share equally."""
    width = result.shape[1] // team.world
    return result[:, team.rank * width : (team.rank + 1) * width]


def push_columns(x: torch.Tensor, result: torch.Tensor, team: Team) -> None:
    """Stores x [rows, width] as this rank's columns of `result` [rows, W * width] at all ranks, and waits for theirs.

    x: elements of 2 or 4 bytes that are adjacent within a row; it may be this rank's columns of the result themselves.
    result: symmetric, contiguous. Only this call may use the first BLOCKS signal slots. Collective.
    """
    mine = own_columns(result, team)
    if not result.is_cuda:
        copy_columns(x, result, team)
        team.barrier()
        return
    rows, width = mine.shape
    kernel = kernel_for(cuda.unit_of(result)).push
    blocks = min(max(-(-rows * -(-width * result.element_size() // 16) // THREADS), 1), BLOCKS)
    pitches = x.stride(0), result.stride(0)
    kernel[blocks, THREADS](team.px, x.data_ptr(), mine.data_ptr(), rows, width, *pitches)


def copy_columns(x: torch.Tensor, result: torch.Tensor, team: Team) -> None:
    """Does the same by copy engines, on the current stream, for some rows of a result, without a wait (see `stream_barrier`)."""
    if not x.numel():
        return
    mine = own_columns(result, team)
    places = team.peers(mine)
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


def gathered_product(a_local: torch.Tensor, b: torch.Tensor, team: Team, large: int) -> torch.Tensor:
    """All ranks' a_local [M, K/W], side by side, times this rank's b [K, N] -> [M, N]. Collective.

    large: from this number of bytes of a_local on, rows are gathered during products. Any dtype with elements of 2 or 4
    bytes. Uses the team's signal slots 0 to 127 and SLOT.
    """
    x, rows = a_local.contiguous(), a_local.shape[0]
    if x.is_cuda:
        kernel_for(cuda.unit_of(x))  # before the ranks exchange: see `cuda.lazy`
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
