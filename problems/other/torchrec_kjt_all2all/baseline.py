"""Keyed-jagged-tensor all-to-all: samples' features travel to the ranks that own the features."""

from itertools import accumulate

import torch
import torch.distributed as dist

from problems.shared.variable_exchange import exchange_rows


def _reordered(received: torch.Tensor, sizes: list[list[int]], order: list[int]) -> torch.Tensor:
    """Segments (source, feature) with sizes[source][feature] rows each -> (feature, source in `order`)."""
    pieces = received.split([size for source in sizes for size in source])
    features = len(sizes[0])
    wanted = [pieces[source * features + feature] for feature in range(features) for source in order]
    return torch.cat(wanted) if wanted else received


@torch.no_grad()
def solution(
    lengths: torch.Tensor,
    values: torch.Tensor,
    key_splits: list[int],
    batch_size: int,
    pg: dist.ProcessGroup | None = None,
    weights: torch.Tensor | None = None,
    stride_per_key: list[int] | None = None,
    stagger: int = 1,
) -> dict[str, torch.Tensor]:
    """Sends every feature of this rank's samples to the feature's owner.

    lengths [sum of strides] int64, feature by feature; values [sum of lengths] and weights (or None) in the
    same order. Rank d owns the next key_splits[d] features; feature f has stride_per_key[f] samples here
    (batch_size without it).

    Returns lengths, values (and weights) of the owned features, feature by feature and within a feature by
    source, sources in the order x, x + g, x + 2g... for x below g = W / stagger. With a common batch size
    also stride (their sum, 0-dim int64) and stride_per_rank [W]; with stride_per_key instead
    stride_per_key_per_rank [owned features, W], sources in that order.
    """
    world, rank = dist.get_world_size(pg), dist.get_rank(pg)
    device = lengths.device
    count, mine = sum(key_splits), key_splits[rank]
    strides = stride_per_key if stride_per_key is not None else [batch_size] * count
    span = world // stagger
    order = [x + span * y for x in range(span) for y in range(stagger)]

    ends = torch.tensor([0, *accumulate(strides)], dtype=torch.int64).to(device, non_blocking=True)
    running = torch.cat((lengths.new_zeros(1), lengths.cumsum(0)))
    totals = running[ends].diff()

    # To rank d: the number of ids and the stride of each of its features, then the batch size.
    owned_from = [0, *accumulate(key_splits)]
    table = torch.stack((totals, ends.diff()), dim=1).flatten()
    batch = torch.tensor([batch_size], dtype=torch.int64).to(device, non_blocking=True)
    parts = table.split([2 * features for features in key_splits])
    message = torch.cat([piece for part in parts for piece in (part, batch)])
    heard = exchange_rows(message, [2 * features + 1 for features in key_splits], [2 * mine + 1] * world, pg)

    numbers = torch.cat((totals, heard)).tolist()
    sent_totals, news = numbers[:count], numbers[count:]
    came = [news[source * (2 * mine + 1) : (source + 1) * (2 * mine + 1)] for source in range(world)]
    came_totals = [entry[0:-1:2] for entry in came]
    came_strides = [entry[1:-1:2] for entry in came]

    owned = [slice(owned_from[d], owned_from[d + 1]) for d in range(world)]
    sent_rows = [sum(strides[part]) for part in owned]
    sent_ids = [sum(sent_totals[part]) for part in owned]
    rows, ids = [sum(entry) for entry in came_strides], [sum(entry) for entry in came_totals]
    result = {
        "lengths": _reordered(exchange_rows(lengths, sent_rows, rows, pg), came_strides, order),
        "values": _reordered(exchange_rows(values, sent_ids, ids, pg), came_totals, order),
    }
    if stride_per_key is None:
        per_rank = heard.view(world, -1)[:, -1].clone()
        result["stride"] = per_rank.sum()
        result["stride_per_rank"] = per_rank
    else:
        per_key = heard.view(world, -1)[order, 1:-1:2]
        result["stride_per_key_per_rank"] = per_key.t().contiguous()
    if weights is not None:
        result["weights"] = _reordered(exchange_rows(weights, sent_ids, ids, pg), came_totals, order)
    return result
