"""Exchange after attention: from a block of the heads to a slice of the sequence."""

import torch
import torch.distributed as dist

from problems.shared.ulysses import pad_to_multiple, reshard


@torch.no_grad()
def solution(x: torch.Tensor, seq_dim: int, head_dim: int, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """x with S positions along seq_dim and A heads along head_dim; the dimensions differ and are not negative.

    Returns this rank's ceil(S/W) positions of all W·A heads, in rank order; positions beyond S are zeros.
    """
    padded = pad_to_multiple(x, seq_dim, dist.get_world_size(group))
    return reshard(padded, seq_dim, head_dim, group)
