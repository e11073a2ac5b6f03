"""Parts of distributed transforms of real fields: owners of pairs of spectrum rows, and transposed blocks.

from sandbox.kit.blocks.fourier import row_pairs, transposed

plan = row_pairs(n0, team.world, x.device)     # rows k and n0 - k of a real field's spectrum are each other's conjugates
columns = transposed(x)                        # [.., a, b] -> [.., b, a], as a copy
"""

import functools
import itertools
from dataclasses import dataclass

import torch

from sandbox.kit import cuda
from sandbox.kit.blocks import cuda_text

kernel_for = cuda.lazy(cuda_text("fourier"))
BLOCKS, THREADS = 132 * 8, 256


def transposed(x: torch.Tensor) -> torch.Tensor:
    """A contiguous copy of x [.., a, b] with its last two dimensions exchanged; elements of 4 or 8 bytes."""
    if not x.is_cuda:
        return x.transpose(-1, -2).contiguous()
    x = x.contiguous()
    rows, columns = x.shape[-2:]
    result = x.new_empty((*x.shape[:-2], columns, rows))
    if x.numel():
        blocks = x.numel() // (rows * columns)
        kernel = kernel_for(torch.uint32 if x.element_size() == 4 else torch.uint64).transpose
        tiles = blocks * -(-rows // 32) * -(-columns // 32)
        kernel[min(tiles, BLOCKS), THREADS](x.data_ptr(), result.data_ptr(), blocks, rows, columns)
    return result


@dataclass(frozen=True)
class RowPairs:
    """Rows k and (n0 - k) mod n0 of a spectrum of n0 rows form a pair, k = 0 .. n0//2. One member works on both.

    Row i belongs to member i // height, and the member that works on a pair owns at least one of its rows. height: rows
    of a member, n0 / W; count: pairs of the member with the most; pairs: int32 [W · count], every member's k in
    ascending order, then -1.
    """

    height: int
    count: int
    pairs: torch.Tensor


def pair_owners(n0: int, world: int) -> list[list[int]]:
    """The pairs of every member, in ascending order of k; W divides n0."""
    height = n0 // world
    owners: list[list[int]] = [[] for _ in range(world)]

    def members(k: int) -> tuple[int, int]:
        return k // height, (n0 - k) % n0 // height

    for (upper, lower), group in itertools.groupby(range(n0 // 2 + 1), members):
        run = list(group)  # pairs of the same two members, of which each takes half
        half = -(-len(run) // 2)
        owners[upper] += run[:half]
        owners[lower] += run[half:]
    return [sorted(own) for own in owners]


@functools.lru_cache(maxsize=64)
def row_pairs(n0: int, world: int, device: torch.device) -> RowPairs:
    """The owners of the pairs of n0 rows. Raises ValueError if W does not divide n0.

    A new plan is copied to the GPU once, which blocks the host.
    """
    if n0 % world:
        raise ValueError(f"{n0} rows of a spectrum do not divide by {world} ranks")
    owners = pair_owners(n0, world)
    count = max(map(len, owners))
    listed = [k for own in owners for k in own + [-1] * (count - len(own))]
    return RowPairs(n0 // world, count, torch.tensor(listed, dtype=torch.int32, device=device))
