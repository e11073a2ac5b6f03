"""Re-sharding from one dimension to another: pack, all-to-all, unpack."""

import torch
import torch.distributed as dist

from problems.shared.ulysses import reshard


@torch.no_grad()
def solution(
    x: torch.Tensor, scatter_dim: int, gather_dim: int, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """x of any rank, the same shape everywhere, with x.shape[scatter_dim] a multiple of the group's size W.

    Returns x with scatter_dim cut to this rank's W-th part and gather_dim W times as long, joined in rank order. A group of
    one rank gets x itself where it is contiguous.
    """
    if dist.get_world_size(group) == 1:
        return x.contiguous()
    return reshard(x, scatter_dim, gather_dim, group)
