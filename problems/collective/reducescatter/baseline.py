"""Sum reduce-scatter over row blocks with one collective."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(tensor: torch.Tensor) -> torch.Tensor:
    """tensor [W·M, N] -> [M, N]: row block r of the sum over all ranks, on rank r."""
    block = tensor.new_empty((tensor.shape[0] // dist.get_world_size(), *tensor.shape[1:]))
    dist.reduce_scatter_tensor(block, tensor.contiguous(), op=dist.ReduceOp.SUM)
    return block
