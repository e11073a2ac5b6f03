"""Gathers the column slices, puts them side by side, then multiplies."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(A_local: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """A_local [M, K/W], B [K, N] (this rank's own) -> [M, N]: all ranks' columns of A times this rank's B."""
    slices = A_local.new_empty((dist.get_world_size(), *A_local.shape))
    dist.all_gather_into_tensor(slices, A_local.contiguous())
    a = slices.transpose(0, 1).reshape(A_local.shape[0], -1)
    return a @ B
