"""Broadcast of a list of tensors from one rank into a flat symmetric buffer of every rank, in one launch.

    from sandbox.kit import symm
    from sandbox.kit.blocks.fan_out import fan_out

    flat = symm.out(count, dtype, "weights", ring=2)
    fan_out([w1, b1, w2, b2], flat, symm.connect())        # flat: w1, b1, w2, b2 of rank 0, on every rank

    spread(x, flat, symm.connect(), root)                  # one tensor, by copy engines: faster if it is large

The root sends each byte once: every other rank receives a share and forwards it, piece by piece, to the rest.
"""

from collections.abc import Sequence

import torch

from sandbox.kit import cuda, tables
from sandbox.kit.blocks import cuda_text
from sandbox.kit.blocks.columns import kernel_for as column_kernels
from sandbox.kit.blocks.columns import stream_barrier
from sandbox.kit.blocks.side_stream import beside, join
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(cuda_text("fan_out"))
BLOCKS, THREADS = 128, 512
LEAST = 4
"""Least words of a piece for each thread."""
ROUNDS = (4, 4, 4, 2, 2)
"""Sixteenths of a share in each round of `spread`. The last ones are small, because nothing is sent while they are forwarded."""
SLOT = 1000


def fan_out(
    tensors: Sequence[torch.Tensor],
    flat: torch.Tensor,
    team: Team,
    base: int = 0,
    most_blocks: int = BLOCKS,
    root: int = 0,
) -> None:
    """Copies the root's tensors, one after another, into `flat` of every rank.

    tensors: any shapes, one dtype; the same shapes on all ranks, of which only the root's values count. flat: symmetric, as many
    elements, one of two buffers used in turn. base: the first of 2 * BLOCKS signal slots that only this call uses:
    launches that may run at the same time need separate slots. most_blocks: fewer leave multiprocessors to other
    kernels. Collective.
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
    blocks = min(max(-(-words // (helpers * THREADS)), 1), most_blocks, BLOCKS)
    pieces = 1 if helpers == 1 else min(max(words // (helpers * blocks * THREADS * LEAST), 1), 7)
    kernel = kernel_for(flat.dtype).fan_out[blocks, THREADS]
    kernel(team.px, few, many, flat.data_ptr(), len(given), words, pieces, base, BLOCKS, root)


def share(count: int, helpers: int) -> int:
    """Elements that each of the helpers forwards; shares begin on 16 bytes if the whole does."""
    return -(-count // (8 * helpers)) * 8


def shares(count: int, helpers: int) -> list[list[slice]]:
    """The part of each round that each of the helpers forwards of `count` elements: by round, then by helper."""
    each = share(count, helpers)
    found = []
    for number in range(len(ROUNDS)):
        first, last = (each // 8 * sum(ROUNDS[:end]) // sum(ROUNDS) * 8 for end in (number, number + 1))
        ends = [(min(helper * each + first, count), helper * each + last) for helper in range(helpers)]
        found.append([slice(low, min(high, count)) for low, high in ends])
    return found


def spread(x: torch.Tensor, flat: torch.Tensor, team: Team, root: int = 0) -> None:
    """Copies the root's x into `flat` of every rank by copy engines, on GPUs.

    x, flat: contiguous, as many elements; flat is symmetric, one of two buffers used in turn. Uses the team's signal slots SLOT
    and SLOT + 1. Collective.
    """
    column_kernels(cuda.unit_of(flat))  # before the ranks exchange: see `cuda.lazy`
    places, given, helpers = team.peers(flat.view(-1)), x.view(-1), team.world - 1
    if team.rank == root:
        with beside():
            places[root].copy_(given)
    own = (team.rank - root - 1) % team.world
    for parts in shares(flat.numel(), helpers) if helpers else ():
        if team.rank == root:
            for helper, part in enumerate(parts):
                places[(root + 1 + helper) % team.world][part].copy_(given[part])
        stream_barrier(flat, team, SLOT)
        if team.rank != root:
            with beside():
                for away in range(1, helpers):
                    to = (root + 1 + (own + away) % helpers) % team.world
                    places[to][parts[own]].copy_(places[team.rank][parts[own]])
    with beside():
        stream_barrier(flat, team, SLOT + 1)
    join()
