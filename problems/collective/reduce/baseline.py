"""Sum to one root with one collective on a copy."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(tensor: torch.Tensor, dst: int = 0) -> torch.Tensor:
    """tensor [M, N] -> [M, N]: the elementwise sum over all ranks on dst, a copy of the rank's own tensor
    elsewhere.
    """
    total = tensor.clone()
    dist.reduce(total, dst=dst, op=dist.ReduceOp.SUM)
    return total
