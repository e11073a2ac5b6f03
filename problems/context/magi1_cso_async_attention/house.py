"""House kernel: range attention; exchanges store heads at their final places beside another range's attention."""

import contextlib

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks.attention import attend
from sandbox.kit.blocks.reshard import reshard
from sandbox.kit.blocks.side_stream import beside, join

symm.reserve(4 << 30)  # two buffers for each exchange, of the largest sizes


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
    clip_token_nums = c tokens of each range (all, if None or 0) and are concatenated to R*c rows; all
    queries of range i attend to rows k_ranges[i, 0] up to k_ranges[i, 1]. Query head h reads kv head h * Hk
    // Hq.

    Keys, values and the first range's queries are exchanged first. The exchanges of the other queries, and of the
    outputs of all ranges but the last, run beside the attention of a range.
    """
    world, ranges = dist.get_world_size(group), cp_shuffle_num
    intervals = k_ranges.tolist()  # the host needs the shapes; no work is queued yet that it would wait for
    if key_value.shape[1] < world:
        key_value = key_value.repeat_interleave(world // key_value.shape[1], dim=1)
    queries = query.reshape(ranges, -1, *query.shape[1:])  # [R, b, Hq, Dh]
    pairs = key_value.reshape(ranges, -1, *key_value.shape[1:])
    first, rest = queries[:1], queries[1:]
    team = symm.team(group) if world > 1 else None
    aside = beside if query.is_cuda else contextlib.nullcontext
    if team:
        pairs = reshard(pairs, 2, 1, team)  # [R, W*b, Hk/W, 2*Dh]
        first = reshard(first, 2, 1, team)
        if ranges > 1:
            with aside():
                rest = reshard(rest, 2, 1, team)
    kept = clip_token_nums or pairs.shape[1]
    key, value = pairs[:, :kept].flatten(0, 1)[None].chunk(2, dim=-1)  # copies only if tokens are left out

    output, attended = torch.empty_like(queries, memory_format=torch.contiguous_format), []
    for i, (start, end) in enumerate(intervals):
        if i == 1 and team and query.is_cuda:
            join()  # the other queries have arrived
        own = first if i == 0 else rest[i - 1 : i]
        attended.append(attend(own, key[:, start:end], value[:, start:end], None, causal=False))
        if not team:
            output[i] = attended[i][0]
            continue
        with aside():
            # The result lies in a ring of two buffers. A peer can overwrite it only after the next exchange here has
            # begun, which is after this copy.
            output[i] = reshard(attended[i], 1, 2, team)[0]
    if team and query.is_cuda:
        join()  # `attended` must exist until here: the side stream reads it
    return output.view(query.shape)
