"""Sum over the ranks of a small team in one launch: every rank sends everything to all ranks, and every rank adds.

    from sandbox.kit import symm
    from sandbox.kit.blocks.sums import add_up, boxes

    box = boxes(x.numel(), x.dtype, team, x.is_cuda)
    add_up(x, box, team)                  # x: the sum over the team's ranks, in float32 and rounded once

Two ranks send as much as with any other algorithm, and synchronise once. W ranks send W/2 times as much as if each
added a share.
"""

import torch

from sandbox.kit import cuda
from sandbox.kit.blocks import cuda_text
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(cuda_text("sums"))
BLOCKS, THREADS = 128, 512
ONE_BARRIER = 8 << 20
"""Up to this number of bytes that a rank sends, this is faster than adding in shares, with two synchronisations."""

ONE_SHOT = 1 << 15
"""Elements up to which every CPU rank adds the whole tensor, with one barrier. Beyond, each adds 1/W and reads the rest."""


def boxes(count: int, dtype: torch.dtype, team: Team, on_gpu: bool) -> torch.Tensor:
    """The buffer in which all ranks' elements arrive: symmetric [W, at least count], one of two in turn. Collective."""
    if on_gpu:
        kernel_for(dtype)  # before the ranks exchange: see `cuda.lazy`
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
    launch = kernel_for(x.dtype).add_up_over_ranks[blocks, THREADS]
    launch(team.px, x.data_ptr(), out.data_ptr(), box.data_ptr(), x.numel(), box.stride(0), factor, base)


def summed(tensor: torch.Tensor, team: Team) -> torch.Tensor:
    """The sum of every CPU rank's symmetric tensor, in float32 and rounded once, in fresh memory. Collective."""
    peers = team.peers(tensor)
    team.barrier()
    if tensor.numel() <= ONE_SHOT:
        total = peers[0].to(torch.float32, copy=True)
        for peer in peers[1:]:
            total += peer
        return total.to(tensor.dtype)
    part = -(-tensor.numel() // team.world)
    low = min(team.rank * part, tensor.numel())
    share = tensor.new_zeros(part, dtype=torch.float32)
    mine = share[: max(min(part, tensor.numel() - low), 0)]
    for other in team.order():
        mine += peers[other].view(-1)[low : low + mine.numel()]
    shares = team.peers(team.stage(share.to(tensor.dtype), "shares"))
    team.barrier()
    return torch.cat(shares)[: tensor.numel()].view(tensor.shape)
