"""Sum all-reduce with one collective."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(tensor: torch.Tensor) -> torch.Tensor:
    """tensor [M, N] -> [M, N]: the elementwise sum over all ranks, on every rank."""
    total = tensor.clone()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return total
