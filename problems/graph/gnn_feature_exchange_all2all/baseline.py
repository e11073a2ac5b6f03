"""Feature exchange of cooperative mini-batching: gather the rows peers asked for, one variable all-to-all."""

import torch
import torch.distributed as dist

from problems.shared.rotated import all_to_all_rotated


@torch.no_grad()
def solution(
    local_features: torch.Tensor,
    seed_inverse_ids: torch.Tensor,
    counts_sent: list[int],
    counts_received: list[int],
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """local_features [s, ...], seed_inverse_ids [R] int64 -> [sum(counts_sent), ...].

    The counts are named after the request phase: ids that were sent come back as rows. So this call sends
    counts_received[i] rows to the peer (rank + i) mod W and receives counts_sent[i] rows from it; chunks of
    the ids and of the result follow that rotated order.
    """
    rows = local_features[seed_inverse_ids]
    return all_to_all_rotated(rows, sent=counts_received, received=counts_sent, group=group)
