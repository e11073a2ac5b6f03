"""Sample sort: local sort, splitters from samples, exchange, merge, and a second exchange that evens out the
shares.
"""

from itertools import accumulate

import torch
import torch.distributed as dist

from problems.shared.variable_exchange import exchange_counts, exchange_rows


def _samples(
    keys: torch.Tensor, rank: int, world: int, sizes: list[int], group: dist.ProcessGroup | None
) -> torch.Tensor:
    """W - 1 splitters as (positions in the sorted keys of this rank) [W - 1]: what lies before goes to
    earlier ranks.

    Each rank offers W evenly spaced keys; equal keys are told apart by where they stand in the joined
    sequence of all ranks, so that even a single repeated value is shared out.
    """
    device = keys.device
    start = sum(sizes[:rank])
    place = torch.arange(world, device=device) * keys.numel() // world
    offered = keys[place] if keys.numel() else keys.new_full((world,), float("inf"))
    values = keys.new_empty(world * world)
    places = torch.empty(world * world, dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(values, offered, group=group)
    dist.all_gather_into_tensor(places, place + start, group=group)
    filled = [r for r, size in enumerate(sizes) if size]
    usable = torch.tensor(filled, device=device)[:, None] * world + torch.arange(world, device=device)
    values, places = values[usable.flatten()], places[usable.flatten()]
    by_place = torch.argsort(places, stable=True)
    order = by_place[torch.argsort(values[by_place], stable=True)]
    chosen = order[torch.arange(1, world, device=device) * order.numel() // world]
    value = values[chosen].contiguous()
    low = torch.searchsorted(keys, value)
    high = torch.searchsorted(keys, value, right=True)
    return torch.minimum(torch.maximum(places[chosen] - start, low), high)


@torch.no_grad()
def solution(local_shard: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """local_shard [n_r], floating and without NaN; n_r may differ between ranks and be zero -> [m_r] sorted
    keys.

    With n keys in all, rank r returns the r-th contiguous block of the sorted sequence; block sizes differ by
    at most one and the first n mod W ranks have the larger ones.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    keys = local_shard.sort().values
    if world == 1:
        return keys
    mine = torch.tensor([keys.numel()], dtype=torch.int64, device=keys.device)
    gathered = torch.empty(world, dtype=torch.int64, device=keys.device)
    dist.all_gather_into_tensor(gathered, mine, group=group)
    sizes = gathered.tolist()
    total = sum(sizes)
    if total == 0:
        return keys

    cuts = _samples(keys, rank, world, sizes, group)
    ends = torch.cat((cuts.new_zeros(1), cuts, mine))
    sent, received = exchange_counts(ends.diff(), group)
    keys = exchange_rows(keys, sent, received, group).sort().values

    # Bucket r now holds a contiguous piece of the sorted sequence; move what lies beyond the even borders.
    mine = torch.tensor([keys.numel()], dtype=torch.int64, device=keys.device)
    dist.all_gather_into_tensor(gathered, mine, group=group)
    held = [0, *accumulate(gathered.tolist())]
    due = [0, *accumulate(total // world + (r < total % world) for r in range(world))]

    def shared(a: int, b: int) -> int:
        """Keys that bucket a holds and rank b is due."""
        return max(0, min(held[a + 1], due[b + 1]) - max(held[a], due[b]))

    sent, received = [shared(rank, r) for r in range(world)], [shared(r, rank) for r in range(world)]
    return exchange_rows(keys, sent, received, group)
