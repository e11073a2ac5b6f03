"""Exchange before attention: from a slice of the sequence to a block of the heads."""

import torch
import torch.distributed as dist

from problems.shared.ulysses import reshard, trim


@torch.no_grad()
def solution(
    x: torch.Tensor, seq_dim: int, head_dim: int, group: dist.ProcessGroup | None = None, unpadded_dim_size: int = 0
) -> torch.Tensor:
    """x with S positions along seq_dim and A heads along head_dim; W divides A; the dimensions differ and are not negative.

    Returns x with all W·S positions, in rank order, of this rank's A/W heads; trimmed to unpadded_dim_size positions where
    that is set and not a multiple of W.
    """
    return trim(reshard(x, head_dim, seq_dim, group), seq_dim, unpadded_dim_size, group)
