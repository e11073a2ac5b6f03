"""From sequence shards to head shards and back (Ulysses): one all-to-all, heads in rank order."""

import torch
import torch.distributed as dist


def sequence_to_heads(x: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """x [B, S, H, ...], this rank's tokens -> [B, W*S, H/W, ...], all tokens of this rank's heads."""
    world = dist.get_world_size(group)
    leaving = x.unflatten(2, (world, -1)).movedim(2, 0).contiguous()
    arrived = torch.empty_like(leaving)
    dist.all_to_all_single(arrived, leaving, group=group)
    return arrived.movedim(0, 1).flatten(1, 2)


def heads_to_sequence(x: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """x [B, W*S, h, ...], all tokens of this rank's heads -> [B, S, W*h, ...], this rank's tokens."""
    world = dist.get_world_size(group)
    leaving = x.unflatten(1, (world, -1)).movedim(1, 0).contiguous()
    arrived = torch.empty_like(leaving)
    dist.all_to_all_single(arrived, leaving, group=group)
    return arrived.movedim(0, 2).flatten(2, 3)
