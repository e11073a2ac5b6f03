"""Cooperative mini-batching of graphs: counts in rotated order, and the all-to-all that goes with them.

Position i of a list on rank r stands for the peer (r + i) mod W: position 0 is the rank itself. Step i then
pairs every rank with another partner, so that no receiver is hit by two senders at once.
"""

import torch
import torch.distributed as dist

from problems.setting import RankSetting


def rows_per_peer(setting: RankSetting) -> torch.Tensor:
    """[W, W] int64: row s, column d = rows that rank s sends to rank d; the same on every rank.

    Upstream: the size `rpp` everywhere. Otherwise skewed, from none to about three times `rpp`, in a random
    Latin square: every rank still sends and receives W * rpp rows in all, so that shapes do not change from
    trial to trial.
    """
    world, mean = setting.world, int(setting.sizes.rpp)
    if setting.distribution == "upstream" or world == 1:
        return torch.full((world, world), mean, dtype=torch.int64, device=setting.device)
    places = torch.arange(world, device=setting.device)
    weight = 1 + 2 * places if world == 2 else places**2
    counts = weight * (mean * world) // weight.sum()
    counts[-1] += mean * world - counts.sum()
    counts = counts[setting.permutation(world, shared=True)]
    source = setting.permutation(world, shared=True)
    target = setting.permutation(world, shared=True)
    return counts[(source[:, None] + target) % world]


def rotated(per_rank: torch.Tensor, rank: int) -> torch.Tensor:
    """[W] by rank -> [W] by rotated position, as `rank` sees its peers."""
    return per_rank.roll(-rank)


def all_to_all_rotated(
    rows: torch.Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup | None
) -> torch.Tensor:
    """Chunk i of rows [sum(sent), ...] goes to position i, chunk i of [sum(received), ...] comes from it."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    arrived = rows.new_empty(sum(received), *rows.shape[1:])
    outgoing, incoming = rows.split(sent), arrived.split(received)
    position = [(peer - rank) % world for peer in range(world)]
    dist.all_to_all([incoming[i] for i in position], [outgoing[i] for i in position], group=group)
    return arrived
