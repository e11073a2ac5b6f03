"""Equal-split all-to-all with one collective."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(tensor: torch.Tensor) -> torch.Tensor:
    """tensor [W, M, N] -> [W, M, N]: slot s on rank r holds chunk r of rank s."""
    received = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    dist.all_to_all_single(received, tensor.contiguous())
    return received
