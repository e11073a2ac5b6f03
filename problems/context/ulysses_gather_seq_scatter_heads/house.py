"""House kernel: exchange before attention; every run of a position's heads is stored at its final place at the peer."""

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks.reshard import reshard

symm.reserve(4 << 30)  # two results of the largest sizes


def solution(
    x: torch.Tensor, seq_dim: int, head_dim: int, group: dist.ProcessGroup | None = None, unpadded_dim_size: int = 0
) -> torch.Tensor:
    """x with S positions along seq_dim and A heads along head_dim; W divides A; the dimensions differ and are not negative.

    Returns all W·S positions, in rank order, of this rank's A/W heads. If unpadded_dim_size is set and not a multiple
    of W, the result is trimmed to so many positions (a copy, unless the sequence comes first).
    """
    team = symm.team(group)
    whole = reshard(x, head_dim, seq_dim, team)
    if not unpadded_dim_size or unpadded_dim_size % team.world == 0:
        return whole
    return whole.narrow(seq_dim, 0, min(unpadded_dim_size, whole.shape[seq_dim])).contiguous()
