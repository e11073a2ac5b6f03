"""Sum over the ranks of a small team in one launch: every rank sends everything to all ranks, and every rank adds.

    from sandbox.kit import symm
    from sandbox.kit.blocks.sums import add_up, boxes

    box = boxes(x.numel(), x.dtype, team, x.is_cuda)
    add_up(x, box, team)                  # x: the sum over the team's ranks, in float32 and rounded once

Two ranks send as much as with any other algorithm, and synchronise once. W ranks send W/2 times as much as if each
added a share.
"""

import functools
from pathlib import Path
from typing import Any

import torch

from sandbox.kit import cuda
from sandbox.kit.symmetric_memory.team import Team

SOURCE = Path(__file__).with_name("sums.cu").read_text()
ENTRY = r"""
extern "C" __global__ void __launch_bounds__(512) add_up_over_ranks(
        Px px, const TYPE* x, TYPE* y, TYPE* box, i64 n, i64 pitch, float factor, u32 base) {
    add_up<TYPE>(px, x, y, box, n, pitch, factor, base);
}
"""
TYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "float"}
BLOCKS, THREADS = 128, 512
ONE_BARRIER = 8 << 20
"""Up to this number of bytes that a rank sends, this is faster than adding in shares, with two synchronisations."""


@functools.cache
def kernel_for(dtype: torch.dtype) -> Any:
    """The kernel of a dtype, compiled at its first use, which is within a first call."""
    return cuda.compile(SOURCE + ENTRY.replace("TYPE", TYPES[dtype])).add_up_over_ranks


def boxes(count: int, dtype: torch.dtype, team: Team, on_gpu: bool) -> torch.Tensor:
    """The buffer in which all ranks' elements arrive: symmetric [W, at least count], one of two in turn. Collective."""
    if on_gpu:
        kernel_for(dtype)  # before the ranks synchronise, because a rank that waits in a kernel traps after 2 s
    each = 16 // dtype.itemsize
    return team.out((team.world, -(-count // each) * each), dtype, "sums", ring=2)


def add_up(
    x: torch.Tensor,
    box: torch.Tensor,
    team: Team,
    factor: float = 1.0,
    base: int = 0,
    most_blocks: int = BLOCKS,
    out: torch.Tensor | None = None,
) -> None:
    """Sets `out` to the sum of all ranks' x times `factor`. It adds in float32, in the order of the ranks.

    x: contiguous. out: like x; by default x itself.
    box: the result of `boxes`, or its columns from any element on: [W, at least x.numel()]; no two sums of a call share
    its elements. base: the first of BLOCKS signal slots that only this call uses. most_blocks: fewer leave
    multiprocessors to other kernels. Collective.
    """
    out = x if out is None else out
    if not x.is_cuda:
        for place in team.peers(box):
            place[team.rank, : x.numel()] = x.flatten()
        team.barrier()
        total = torch.zeros(x.numel(), dtype=torch.float32)
        for part in box:
            total += part[: x.numel()]
        out.copy_(total.mul_(factor).view(x.shape))
        return
    blocks = min(max(-(-x.nbytes // (16 * THREADS)), 1), most_blocks, BLOCKS)
    launch = kernel_for(x.dtype)[blocks, THREADS]
    launch(team.px, x.data_ptr(), out.data_ptr(), box.data_ptr(), x.numel(), box.stride(0), factor, base)
