"""Push (id, row) pairs to the ranks that own the ids: bucket sort by owner, then variable all-to-alls."""

import torch
import torch.distributed as dist

from problems.shared.variable_exchange import bucket_counts, exchange_counts, exchange_rows


@torch.no_grad()
def solution(
    idx: torch.Tensor, value: torch.Tensor, num_nodes: int, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """idx [n] int64, value [n, ...] -> the pairs this rank owns: recv_idx [R] int64, recv_value [R, ...].

    Rank i mod W owns id i. Pairs come by sender, and in the sender's order; n may differ between ranks and be
    zero. num_nodes is the number of ids in all and does not change the result. With one rank the arguments
    are handed back.
    """
    world = dist.get_world_size(group)
    if world == 1:
        return idx, value
    owner = idx % world
    order = torch.argsort(owner.to(torch.int16), stable=True)
    sent, received = exchange_counts(bucket_counts(owner, world), group)
    recv_idx = exchange_rows(idx[order], sent, received, group)
    recv_value = exchange_rows(value[order], sent, received, group)
    return recv_idx, recv_value
