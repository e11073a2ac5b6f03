"""Exchange before attention for packed QKV: one all-to-all instead of three."""

import torch
import torch.distributed as dist

from problems.shared.ulysses import reshard, trim


@torch.no_grad()
def solution(
    qkv_tensor: torch.Tensor,
    seq_dim: int,
    group: dist.ProcessGroup | None = None,
    unpadded_dim_size: int | None = None,
    restore_shape: bool = True,
) -> torch.Tensor:
    """qkv_tensor [.., 3·P], packed as [Q | K | V], with S positions along seq_dim (not negative, before the last); W divides P.

    Returns all W·S positions of this rank's P/W columns of each projection: [.., 3·P/W] packed as before, or [.., 3, P/W]
    without restore_shape; trimmed to unpadded_dim_size positions where that is set and not a multiple of W.
    """
    apart = qkv_tensor.unflatten(-1, (3, -1))
    mine = trim(reshard(apart, -1, seq_dim, group), seq_dim, unpadded_dim_size, group)
    return mine.flatten(-2) if restore_shape else mine
