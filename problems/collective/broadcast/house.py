"""The house's broadcast: everybody copies out of the root's memory."""

import torch

from sandbox.kit import symm


@torch.no_grad()
def solution(tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
    """tensor [M, N] -> [M, N]: rank src's tensor, as a fresh tensor on every rank (a copy on src itself)."""
    # The root changes from call to call, so every rank takes its turn with the two buffers.
    shared = symm.out(tensor.shape, tensor.dtype, "root", ring=2)
    if symm.rank == src:
        shared.copy_(tensor)
        symm.barrier()
        return tensor.clone()
    symm.barrier()
    return symm.peers(shared)[src].clone()
