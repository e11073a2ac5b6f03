"""House kernel: range attention; copy engines return the heads of one range while the next one attends."""

import contextlib

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.attention import attend
from sandbox.kit.blocks.columns import copy_rows, kernel_for, stream_barrier
from sandbox.kit.blocks.reshard import reshard
from sandbox.kit.blocks.side_stream import beside, join

SLOT = 1000

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

    The host's launches are the limit, so queries are exchanged in one launch, and the next range's attention is queued
    before the exchange of an output. Copy engines do that one beside the attention: a kernel that waits for a peer would
    hold multiprocessors.
    """
    world, ranges = dist.get_world_size(group), cp_shuffle_num
    intervals = k_ranges.tolist()  # the host needs the shapes; no work is queued yet that it would wait for
    if key_value.shape[1] < world:
        key_value = key_value.repeat_interleave(world // key_value.shape[1], dim=1)
    team, is_cuda = symm.team(group), query.is_cuda
    if is_cuda:
        kernel_for(cuda.unit_of(query))  # before the ranks exchange: see `cuda.lazy`
    pairs = reshard(key_value.reshape(ranges, -1, *key_value.shape[1:]), 2, 1, team)  # [R, W*b, Hk/W, 2*Dh]
    queries = reshard(query.reshape(ranges, -1, *query.shape[1:]), 2, 1, team)  # [R, W*b, Hq/W, Dh]
    kept = clip_token_nums or pairs.shape[1]
    key, value = pairs[:, :kept].flatten(0, 1)[None].chunk(2, dim=-1)  # copies only if tokens are left out

    # Two buffers are enough: a rank writes in call e+2 after the barriers of call e+1, when all ranks have ended call e.
    rows, share = len(query) // ranges, query[0].numel() // world
    output = team.out((ranges, rows, world * share), query.dtype, "output", ring=2)
    places = team.peers(output[..., team.rank * share : (team.rank + 1) * share])
    made: list[torch.Tensor] = []  # kept until copy engines have read them

    def send(number: int) -> None:
        for peer in team.order():
            copy_rows(places[peer][number], made[number][peer * rows : (peer + 1) * rows])

    ready = None
    for number, (start, end) in enumerate(intervals):
        own = queries[number : number + 1]
        made.append(attend(own, key[:, start:end], value[:, start:end], None, causal=False).view(-1, share))
        if number:
            with beside(ready) if is_cuda else contextlib.nullcontext():
                send(number - 1)
        ready = torch.cuda.current_stream().record_event() if is_cuda else None
    send(ranges - 1)
    if is_cuda:
        join()
    stream_barrier(output, team, SLOT)
    return output.view(query.shape)
