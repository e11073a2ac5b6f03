"""House kernel: all-gather along the first dimension; every word is read once and stored in every rank's result."""

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks.columns import push_columns

symm.reserve(4 << 30)  # two results of the largest sizes


def solution(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """x [M, ..], the same shape on all ranks -> [W·M, ..], the shards of the group's ranks in rank order.

    A group of one rank gets x itself if it is contiguous. On GPUs the element size must be a multiple of two bytes.
    """
    team = symm.team(group)
    shard = x.contiguous()
    if team.world == 1:
        return shard
    # Two results are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the
    # result of call e before that barrier.
    gathered = team.out((team.world * shard.shape[0], *shard.shape[1:]), shard.dtype, "gathered")
    push_columns(shard.view(1, -1), gathered.view(1, -1), team)
    return gathered
