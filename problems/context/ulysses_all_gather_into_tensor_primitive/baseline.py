"""All-gather of equal shards into one tensor."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """x [M, ..], the same shape everywhere -> [W·M, ..], the shards of the group's ranks in rank order.

    A group of one rank gets x itself where it is contiguous.
    """
    world = dist.get_world_size(group)
    shard = x.contiguous()
    if world == 1:
        return shard
    gathered = shard.new_empty(world * shard.shape[0], *shard.shape[1:])
    dist.all_gather_into_tensor(gathered, shard, group=group)
    return gathered
