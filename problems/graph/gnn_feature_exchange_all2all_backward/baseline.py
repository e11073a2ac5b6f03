"""Adjoint of the cooperative feature exchange: one variable all-to-all, then a sum of rows by node."""

import torch
import torch.distributed as dist

from problems.shared.rotated import all_to_all_rotated


@torch.no_grad()
def solution(
    grad_output: torch.Tensor,
    seed_inverse_ids: torch.Tensor,
    seed_size: int,
    counts_sent: list[int],
    counts_received: list[int],
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """grad_output [sum(counts_sent), h], seed_inverse_ids [sum(counts_received)] int64 -> [seed_size, h].

    Row j that arrives is added to row seed_inverse_ids[j]; rows that nothing is added to are zero. Position i
    of the counts and of the chunks stands for the peer (rank + i) mod W. Sums are kept in float32 or wider.
    """
    arrived = all_to_all_rotated(grad_output, sent=counts_sent, received=counts_received, group=group)
    wide = torch.promote_types(arrived.dtype, torch.float32)
    total = torch.zeros(seed_size, arrived.shape[1], dtype=wide, device=arrived.device)
    total.index_add_(0, seed_inverse_ids, arrived.to(wide))
    return total.to(grad_output.dtype)
