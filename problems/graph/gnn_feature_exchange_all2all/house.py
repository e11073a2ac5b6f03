"""House kernel: feature exchange; rows are read by index and stored at their final place at the requesting peer."""

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks.rows import all_to_all_rows

symm.reserve(4 << 30)  # two results of the largest sizes


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
    team = symm.team(group)
    return all_to_all_rows(local_features, counts_received, counts_sent, team, seed_inverse_ids, rotated=True)
