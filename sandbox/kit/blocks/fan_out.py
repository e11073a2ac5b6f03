"""Broadcast of a list of tensors from one rank into a flat symmetric buffer of every rank, in one launch.

    from sandbox.kit import symm
    from sandbox.kit.blocks.fan_out import fan_out

    flat = symm.out(count, dtype, "weights", ring=2)
    fan_out([w1, b1, w2, b2], flat, symm.connect())        # flat: w1, b1, w2, b2 of rank 0, on every rank

The root sends each byte once: every other rank receives a share and forwards it, piece by piece, to the rest.
"""

from collections.abc import Sequence

import torch

from sandbox.kit import cuda, tables
from sandbox.kit.blocks import cuda_text
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(cuda_text("fan_out"))
BLOCKS, THREADS = 128, 512
LEAST = 4
"""Least words of a piece for each thread."""


def fan_out(
    tensors: Sequence[torch.Tensor],
    flat: torch.Tensor,
    team: Team,
    base: int = 0,
    most_blocks: int = BLOCKS,
    root: int = 0,
    threads: int = THREADS,
) -> None:
    """Copies the root's tensors, one after another, into `flat` of every rank.

    tensors: any shapes, one dtype; the same shapes on all ranks, of which only the root's values count. flat: symmetric, as many
    elements, one of two buffers used in turn. base: the first of 2 * max(most_blocks, BLOCKS) signal slots that only this call
    uses: launches that may run at the same time need separate slots. most_blocks: fewer leave multiprocessors to other
    kernels. threads: of a block, up to THREADS. Collective.
    """
    if not flat.is_cuda:
        if team.rank == root:
            torch.cat([tensor.reshape(-1) for tensor in tensors], out=flat)
        team.barrier()
        if team.rank != root:
            flat.copy_(team.peers(flat)[root])
        return
    given = [tensor.contiguous() for tensor in tensors]
    few, many = tables.numbers([n for t in given for n in (t.data_ptr(), t.numel())], flat.device)
    each = 16 // flat.element_size()
    words = sum(-(-tensor.numel() // each) for tensor in given)
    helpers = max(team.world - 1, 1)
    blocks = min(max(-(-words // (helpers * threads)), 1), most_blocks)
    pieces = 1 if helpers == 1 else min(max(words // (helpers * blocks * threads * LEAST), 1), 15)
    kernel = kernel_for(flat.dtype).fan_out[blocks, threads]
    kernel(team.px, few, many, flat.data_ptr(), len(given), words, pieces, base, max(most_blocks, BLOCKS), root)
