"""Range attention under context parallelism: the exchanges of one range run while another range attends."""

from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional


def _start(leaving: torch.Tensor, group: dist.ProcessGroup | None) -> tuple[torch.Tensor, Any]:
    """Begins an all-to-all of leaving [W, ...]; returns where it arrives, and the work to wait for."""
    leaving = leaving.contiguous()
    arrived = torch.empty_like(leaving)
    return arrived, dist.all_to_all_single(arrived, leaving, group=group, async_op=True)


@torch.no_grad()
def solution(
    query: torch.Tensor,
    key_value: torch.Tensor,
    k_ranges: torch.Tensor,
    cp_shuffle_num: int,
    clip_token_nums: int | None = None,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """query [R*b, Hq, Dh], key_value [R*b, Hk, 2*Dh] (K, then V), k_ranges [R, 2] int64 -> [R*b, Hq, Dh].

    R = cp_shuffle_num ranges of W*b tokens, b of each on every rank. Keys and values keep the first
    clip_token_nums = c tokens of each range (all, if None or 0) and stand one after another, R*c of them; all
    queries of range i attend to rows k_ranges[i, 0] up to k_ranges[i, 1]. Query head h reads kv head h * Hk
    // Hq.
    """
    world = dist.get_world_size(group)
    ranges, (rows, heads, channels) = cp_shuffle_num, query.shape
    block = rows // ranges
    kept = clip_token_nums or world * block
    intervals = k_ranges.tolist()

    kv_heads = key_value.shape[1]
    if kv_heads < world:
        key_value = key_value.repeat_interleave(world // kv_heads, dim=1)
    shuffled, arriving = _start(key_value.unflatten(1, (world, -1)).movedim(1, 0), group)
    queries = query.view(ranges, block, world, heads // world, channels).transpose(1, 2)
    exchanged = [_start(queries[0], group)]
    arriving.wait()
    joined = shuffled.unflatten(1, (ranges, block)).transpose(0, 1).flatten(1, 2)[:, :kept].flatten(0, 1)
    key, value = joined.transpose(0, 1).split(channels, dim=-1)

    returning = []
    for i, (start, end) in enumerate(intervals):
        if i + 1 < ranges:
            exchanged.append(_start(queries[i + 1], group))
        own, work = exchanged[i]
        work.wait()
        attended = functional.scaled_dot_product_attention(
            own.flatten(0, 1).transpose(0, 1)[None], key[None, :, start:end], value[None, :, start:end], enable_gqa=True
        )
        returning.append(_start(attended[0].transpose(0, 1).unflatten(0, (world, block)), group))

    output = query.new_empty(ranges, block, world, heads // world, channels)
    for i, (finished, work) in enumerate(returning):
        work.wait()
        output[i] = finished.transpose(0, 1)
    return output.view(rows, heads, channels)
