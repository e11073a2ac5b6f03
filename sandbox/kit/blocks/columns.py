"""Joins the columns of all ranks side by side on every rank, by one launch, or by copy engines during a product.

    from sandbox.kit import symm
    from sandbox.kit.blocks.columns import copy_columns, push_columns, stream_barrier

    result = symm.out((rows, world * width), dtype, "joined", ring=2)
    push_columns(x, result, symm.connect())              # x [rows, width]; complete when the launch ends

    copy_columns(x[:top], result[:top], team)            # in parts: multiprocessors stay free,
    stream_barrier(result, team, slot)                   # and the parts of all ranks have arrived here

The result of call e is written again in call e+2. With a `stream_barrier` in every call, no rank reads it any more by then.
"""

import functools
from pathlib import Path
from typing import Any

import torch

from sandbox.kit import cuda
from sandbox.kit.symmetric_memory.team import Team

SOURCE = Path(__file__).with_name("columns.cu").read_text()
BLOCKS, THREADS = 128, 512
_DEVICE_TO_DEVICE = 3  # cudaMemcpyDeviceToDevice


@functools.cache
def kernels() -> Any:
    """The kernels, compiled at their first use, which is within a first call."""
    return cuda.compile(SOURCE)


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
    kernel = kernels().push_halves if result.element_size() == 2 else kernels().push_words
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
    kernels().barrier_of_all[1, 32](team.px, slot)
