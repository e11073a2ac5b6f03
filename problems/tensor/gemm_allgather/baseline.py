"""Local block of output columns, then all blocks side by side on every rank."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """A [M, K], B [K, N/W] (both this rank's own) -> [M, N]: block s of the columns is A_s · B_s, on every
    rank.
    """
    block = A @ B
    blocks = block.new_empty((dist.get_world_size(), *block.shape))
    dist.all_gather_into_tensor(blocks, block)
    return blocks.transpose(0, 1).reshape(block.shape[0], -1)
