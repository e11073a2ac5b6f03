"""House kernel: exchange of packed QKV; every run of a projection is stored at its final place at the peer."""

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks.reshard import reshard

symm.reserve(4 << 30)  # two results of the largest sizes


def solution(
    qkv_tensor: torch.Tensor,
    seq_dim: int,
    group: dist.ProcessGroup | None = None,
    unpadded_dim_size: int | None = None,
    restore_shape: bool = True,
) -> torch.Tensor:
    """qkv_tensor [.., 3·P], packed as [Q | K | V], with S positions along seq_dim (not negative, before the last); W divides P.

    Returns all W·S positions of this rank's P/W columns of each projection: [.., 3·P/W] packed as before, or
    [.., 3, P/W] without restore_shape. If unpadded_dim_size is set and not a multiple of W, the result is trimmed to so
    many positions (a copy, unless the sequence comes first).
    """
    team = symm.team(group)
    mine = reshard(qkv_tensor.unflatten(-1, (3, -1)), -1, seq_dim, team)
    if unpadded_dim_size and unpadded_dim_size % team.world:
        mine = mine.narrow(seq_dim, 0, min(unpadded_dim_size, mine.shape[seq_dim])).contiguous()
    return mine.flatten(-2) if restore_shape else mine
