"""__PROBLEM__

    __SIGNATURE__

Torch on symmetric memory: ranks read and write each other's buffers, no library in between. solution() is
still the baseline. Replace its collectives by the functions below it, then fuse: write results straight to
where they are needed, overlap, leave out what no rank reads. `help(sandbox.kit.symm)` says when one barrier is
enough.
"""

import torch

from sandbox.kit import symm

# __BASELINE__


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    """The sum over all ranks, added in rank order (bitwise the same on every rank)."""
    mine = symm.stage(x)
    symm.barrier()
    peers = symm.peers(mine)
    total = peers[0].to(torch.promote_types(x.dtype, torch.float32), copy=True)
    for peer in peers[1:]:
        total += peer
    return total.to(x.dtype)


def all_gather(x: torch.Tensor) -> torch.Tensor:
    """The x of all ranks, stacked in rank order: [W, *x.shape]."""
    result = symm.out((symm.world, *x.shape), x.dtype)
    for peer in symm.order():
        symm.peers(result)[peer][symm.rank] = x
    symm.barrier()
    return result


def reduce_scatter(x: torch.Tensor) -> torch.Tensor:
    """This rank's block of rows of the sum over all ranks; rows must divide by W."""
    mine = symm.stage(x)
    symm.barrier()
    blocks = [peer.chunk(symm.world)[symm.rank] for peer in symm.peers(mine)]
    total = blocks[0].to(torch.promote_types(x.dtype, torch.float32), copy=True)
    for block in blocks[1:]:
        total += block
    return total.to(x.dtype)


def all_to_all(x: torch.Tensor) -> torch.Tensor:
    """Block d of x goes to rank d, into its block number `rank`; rows must divide by W."""
    result = symm.out(x.shape, x.dtype)
    for peer in symm.order():
        symm.peers(result)[peer].chunk(symm.world)[symm.rank].copy_(x.chunk(symm.world)[peer])
    symm.barrier()
    return result
