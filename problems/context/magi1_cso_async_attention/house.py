"""House kernel: range attention; copy engines exchange the heads of one range while another range attends."""

import contextlib

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks.attention import attend
from sandbox.kit.blocks.columns import copy_rows, kernels, stream_barrier
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

    Keys, values and the first range's queries are exchanged first. The exchanges of the other queries, and of the
    outputs of all ranges but the last, run beside the attention of a range. Copy engines do them: a kernel that waits for
    a peer would hold multiprocessors that the attention needs.
    """
    world, ranges = dist.get_world_size(group), cp_shuffle_num
    intervals = k_ranges.tolist()  # the host needs the shapes; no work is queued yet that it would wait for
    if key_value.shape[1] < world:
        key_value = key_value.repeat_interleave(world // key_value.shape[1], dim=1)
    queries = query.contiguous().view(ranges, -1, *query.shape[1:])  # [R, b, Hq, Dh]
    pairs = key_value.reshape(ranges, -1, *key_value.shape[1:])
    team, aside = symm.team(group), beside if query.is_cuda else contextlib.nullcontext
    if query.is_cuda:
        kernels()  # before the ranks synchronise, because a rank that waits in a kernel traps after 2 s

    # Two buffers each are enough: a rank writes in call e+2 after the barriers of call e+1, when all ranks have ended call e.
    _, block, heads, width = queries.shape
    arrived = team.out((ranges, world * block, heads // world, width), query.dtype, "queries", ring=2)
    output = team.out((ranges, block, heads, width), query.dtype, "output", ring=2)
    for_queries, for_outputs = team.peers(arrived), team.peers(output)
    shares = [slice(rank * heads // world, (rank + 1) * heads // world) for rank in range(world)]
    blocks = [slice(rank * block, (rank + 1) * block) for rank in range(world)]

    def send_queries(number: int) -> None:
        for peer in team.order():
            copy_heads(for_queries[peer][number, blocks[team.rank]], queries[number, :, shares[peer]])

    send_queries(0)
    pairs = reshard(pairs, 2, 1, team)  # [R, W*b, Hk/W, 2*Dh]; it ends with a barrier, also for the queries
    if ranges > 1:
        with aside():
            for number in range(1, ranges):
                send_queries(number)
            stream_barrier(arrived, team, SLOT)
    kept = clip_token_nums or pairs.shape[1]
    key, value = pairs[:, :kept].flatten(0, 1)[None].chunk(2, dim=-1)  # copies only if tokens are left out

    made = []  # kept until copy engines have read it
    for number, (start, end) in enumerate(intervals):
        if number == 1 and query.is_cuda:
            join()  # the other queries have arrived
        own = arrived[number : number + 1]
        made.append(attend(own, key[:, start:end], value[:, start:end], None, causal=False)[0])
        with aside():
            for peer in team.order():
                copy_heads(for_outputs[peer][number, :, shares[team.rank]], made[number][blocks[peer]])
            if number == ranges - 1:
                stream_barrier(output, team, SLOT)
    if query.is_cuda:
        join()
    return output.view(query.shape)


def copy_heads(to: torch.Tensor, source: torch.Tensor) -> None:
    """Copies heads [b, H, Dh], whose rows need not be adjacent, by copy engine."""
    copy_rows(to.view(len(to), -1), source.view(len(source), -1))
