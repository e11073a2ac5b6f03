"""Zigzag context parallelism: of 2W equal chunks of a sequence, rank r holds chunks r and 2W-1-r.

Under a causal mask every rank then has the same amount of work.
"""

import torch


def natural_order(shards: torch.Tensor, dim: int) -> torch.Tensor:
    """Shards of W ranks in rank order (`dim` has size W, the next one S) -> the sequence, both dims merged to
    W*S.
    """
    first, second = shards.chunk(2, dim=dim + 1)
    return torch.cat((first.flatten(dim, dim + 1), second.flip(dim).flatten(dim, dim + 1)), dim=dim)


def zigzag_shards(sequence: torch.Tensor, dim: int, world: int) -> torch.Tensor:
    """The inverse: `dim` of size W*S in natural order -> two dims, W (rank) and S (its shard)."""
    first, second = sequence.chunk(2, dim=dim)
    first = first.unflatten(dim, (world, -1))
    second = second.unflatten(dim, (world, -1)).flip(dim)
    return torch.cat((first, second), dim=dim + 1)
