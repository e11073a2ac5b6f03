"""The house's dimension-swapping all-to-all: every word is read once and stored at its final place."""

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks.reshard import reshard

symm.reserve(4 << 30)  # two results of the largest sizes


def solution(
    x: torch.Tensor, scatter_dim: int, gather_dim: int, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """x of any rank, the same shape everywhere, with x.shape[scatter_dim] a multiple of the group's size W.

    Returns x with scatter_dim cut to this rank's W-th part and gather_dim W times as long, joined in rank order. A group of
    one rank gets x itself where it is contiguous.
    """
    team = symm.team(group)
    return x.contiguous() if team.world == 1 else reshard(x, scatter_dim, gather_dim, team)
