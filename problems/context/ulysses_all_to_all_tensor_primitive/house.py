"""House kernel: all-to-all that changes the split dimension; every word is read once and stored at its final place."""

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks.reshard import reshard

symm.reserve(4 << 30)  # two results of the largest sizes


def solution(
    x: torch.Tensor, scatter_dim: int, gather_dim: int, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """x with any number of dimensions, the same shape on all ranks; the group's size W divides x.shape[scatter_dim].

    Returns this rank's W-th part of scatter_dim, with the ranks' parts joined along gather_dim in rank order. A group
    of one rank gets x itself if it is contiguous.
    """
    team = symm.team(group)
    return x.contiguous() if team.world == 1 else reshard(x, scatter_dim, gather_dim, team)
