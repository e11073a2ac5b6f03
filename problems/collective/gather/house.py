"""The house's gather: the root copies its peers' tensors out of their memory."""

import torch

from sandbox.kit import symm


@torch.no_grad()
def solution(tensor: torch.Tensor, dst: int = 0) -> torch.Tensor:
    """tensor [M, N] -> on dst [W, M, N], slot s holding rank s's tensor; elsewhere the argument itself [M, N]."""
    peers = symm.peers(symm.stage(tensor))
    symm.barrier()
    if symm.rank != dst:
        return tensor
    stacked = tensor.new_empty((symm.world, *tensor.shape))
    for slot, peer in zip(stacked, peers, strict=True):
        slot.copy_(peer)
    return stacked
