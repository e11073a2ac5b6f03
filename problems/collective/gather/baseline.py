"""Gather to one root with one collective, straight into the stacked result."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(tensor: torch.Tensor, dst: int = 0) -> torch.Tensor:
    """tensor [M, N] -> on dst [W, M, N], slot s holding rank s's tensor; elsewhere the argument itself [M,
    N].
    """
    if dist.get_rank() != dst:
        dist.gather(tensor.contiguous(), dst=dst)
        return tensor
    stacked = tensor.new_empty((dist.get_world_size(), *tensor.shape))
    dist.gather(tensor.contiguous(), list(stacked.unbind(0)), dst=dst)
    return stacked
