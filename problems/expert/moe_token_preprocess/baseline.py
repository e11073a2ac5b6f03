"""Dispatch metadata: count, gather the counts, hand everything to the host in one copy."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(
    expert_mask: torch.Tensor, num_experts: int, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """expert_mask [E, K, T]: 1 where the k-th choice of token t is expert e, else 0.

    Returns four host tensors: rows this rank sends to each rank [W] int64, rows it receives from each rank [W] int64, rows
    of each source for each of this rank's experts [W, E_l], and their sum over the sources [E_l], both in the dtype of the
    mask's sum.
    """
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    counts = expert_mask.sum(dim=(1, 2))
    gathered = counts.new_empty(world, num_experts)
    dist.all_gather_into_tensor(gathered, counts, group=group)
    table = gathered.cpu().view(world, world, num_experts // world)  # source, owner, local expert
    per_local_expert = table[:, rank].contiguous()
    input_splits = table[rank].sum(dim=1).to(torch.int64)
    output_splits = per_local_expert.sum(dim=1).to(torch.int64)
    return input_splits, output_splits, per_local_expert, per_local_expert.sum(dim=0)
