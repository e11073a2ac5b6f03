"""The house's all-gather: every rank copies its peers' tensors out of their memory."""

import torch

from sandbox.kit import symm


@torch.no_grad()
def solution(tensor: torch.Tensor) -> torch.Tensor:
    """tensor [M, N] (any shape) -> [W, M, N]: slot s holds rank s's tensor, on every rank."""
    stacked = tensor.new_empty((symm.world, *tensor.shape))
    peers = symm.peers(symm.stage(tensor))
    stacked[symm.rank].copy_(tensor)
    symm.barrier()
    for peer in symm.order()[1:]:
        stacked[peer].copy_(peers[peer])
    return stacked
