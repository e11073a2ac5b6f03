"""All-gather of shards of unequal length: exchange the lengths, read them once, gather in place."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(x: torch.Tensor, gather_dim: int, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """x of any rank; shapes on the ranks of the group differ along gather_dim at most.

    Returns the shards joined along gather_dim in rank order, contiguous. A group of one rank gets x itself where it is
    contiguous.

    Raises:
        ValueError: shapes differ in another dimension.
    """
    world = dist.get_world_size(group)
    shard = x.contiguous()
    if world == 1:
        return shard
    gather_dim %= shard.dim()
    mine = torch.tensor(shard.shape, dtype=torch.int64, device=shard.device)
    everyone = mine.new_empty(world, shard.dim())
    dist.all_gather_into_tensor(everyone, mine, group=group)
    shapes = everyone.tolist()
    lengths = [shape[gather_dim] for shape in shapes]
    shape = list(shard.shape)
    if any(
        other[:gather_dim] + other[gather_dim + 1 :] != shape[:gather_dim] + shape[gather_dim + 1 :] for other in shapes
    ):
        raise ValueError(f"shards differ in more than dimension {gather_dim}: {shapes}")
    if gather_dim == 0:  # the shards lie one after the other in the result: receive them there
        gathered = shard.new_empty(sum(lengths), *shape[1:])
        dist.all_gather(list(gathered.split(lengths)), shard, group=group)
        return gathered
    shards = [shard.new_empty(*shape[:gather_dim], length, *shape[gather_dim + 1 :]) for length in lengths]
    dist.all_gather(shards, shard, group=group)
    return torch.cat(shards, dim=gather_dim)
