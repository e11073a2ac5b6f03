"""House kernel: all-gather of unequal shards; ranks exchange their shapes, then store every word in all results."""

import math

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks.columns import push_columns

symm.reserve(6 << 30)  # two results of the largest sizes


def solution(x: torch.Tensor, gather_dim: int, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """x with any number of dimensions; shapes on the ranks of the group differ along gather_dim at most.

    Returns the shards joined along gather_dim in rank order, contiguous. A group of one rank gets x itself if it is
    contiguous. On GPUs the element size must be a multiple of two bytes.

    Raises:
        ValueError: shapes differ in another dimension.
    """
    team = symm.team(group)
    shard = x.contiguous()
    if team.world == 1:
        return shard
    gather_dim %= shard.dim()
    shapes = [list(shape) for shape in team.gather_numbers(*shard.shape)]
    lengths = [shape.pop(gather_dim) for shape in shapes]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"shards differ in more than dimension {gather_dim}: {shapes}")
    outer, inner = math.prod(shard.shape[:gather_dim]), math.prod(shard.shape[gather_dim + 1 :])
    before, total = sum(lengths[: team.rank]), sum(lengths)
    shape = (*shard.shape[:gather_dim], total, *shard.shape[gather_dim + 1 :])
    # Two results are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the result of
    # call e before that barrier.
    room = team.room(outer * total * inner, shard.dtype, "gathered", ring=None)
    result = room[: outer * total * inner].view(shape)
    mine, rows = shard.view(outer, lengths[team.rank] * inner), result.view(outer, total * inner)
    push_columns(mine, rows, team, before * inner, max(lengths) * inner)
    return result
