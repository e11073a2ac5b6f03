"""The house's reduce: the root adds up its peers' memory."""

import torch

from sandbox.kit import symm


@torch.no_grad()
def solution(tensor: torch.Tensor, dst: int = 0) -> torch.Tensor:
    """tensor [M, N] -> [M, N]: the elementwise sum over all ranks on dst, a copy of the rank's own tensor elsewhere."""
    peers = symm.peers(symm.stage(tensor))
    symm.barrier()
    if symm.rank != dst:
        return tensor.clone()
    total = peers[0].to(torch.float32, copy=True)
    for peer in peers[1:]:
        total += peer
    return total.to(tensor.dtype)
