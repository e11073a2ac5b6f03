"""House kernel: range attention; copy engines return the heads of one range while the next one attends."""

import contextlib

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.attention import attend
from sandbox.kit.blocks.columns import copy_rows, kernel_for, stream_barrier
from sandbox.kit.blocks.reshard import kernel_for as reshard_kernels
from sandbox.kit.blocks.reshard import reshard
from sandbox.kit.blocks.side_stream import beside, join
from sandbox.kit.recorded import recorded

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

    R = cp_shuffle_num ranges of W*b tokens, b of each on every rank. Keys and values keep the first clip_token_nums = c tokens
    of each range (all, if None or 0) and are concatenated to R*c rows; all queries of range i attend to rows k_ranges[i, 0] up
    to k_ranges[i, 1]. Query head h reads kv head h * Hk // Hq.

    Queries are exchanged in one launch, and the next range's attention is queued before the exchange of an output. Copy
    engines do that one beside the attention: a kernel that waits for a peer would hold multiprocessors.
    """
    world, ranges = dist.get_world_size(group), cp_shuffle_num
    intervals = k_ranges.tolist()  # the host needs the shapes; no work is queued yet that it would wait for
    if key_value.shape[1] < world:
        key_value = key_value.repeat_interleave(world // key_value.shape[1], dim=1)
    team, is_cuda = symm.team(group), query.is_cuda
    for compiled in (kernel_for, reshard_kernels) if is_cuda else ():  # before the ranks exchange: see `cuda.lazy`
        compiled(cuda.unit_of(query))
    # Two buffers are enough: a rank writes in call e+2 after the barriers of call e+1, when all ranks have ended call e.
    output = team.out((ranges, len(query) // ranges, query[0].numel()), query.dtype, "output", ring=2)
    write = write_output if query.itemsize == 2 else write_output.function  # scores in float32 would stay in memory
    write([query, key_value, output], intervals, clip_token_nums, team)
    return output.view(query.shape)


@recorded
def write_output(tensors: list[torch.Tensor], intervals: list[list[int]], clip: int | None, team: symm.Team) -> None:
    """Writes this rank's heads to all ranks' output, symmetric [R, b, Hq*Dh]. tensors: query, keys and values, output."""
    output, world, is_cuda = tensors[2], team.world, tensors[2].is_cuda
    ranges, rows, share = *output.shape[:2], output.shape[2] // world
    exchanged = []
    for x in tensors[:2]:
        parts = x.reshape(ranges, -1, *x.shape[1:])
        # One buffer is enough: a rank writes in the next call, after the barrier behind all ranks' attention.
        whole = team.empty((ranges, world * parts.shape[1], x.shape[1] // world, x.shape[2]), x.dtype, "exchanged")
        exchanged.append(reshard(parts, 2, 1, team, whole))
    queries, pairs = exchanged  # [R, W*b, Hq/W, Dh] and [R, W*b, Hk/W, 2*Dh]
    key, value = pairs[:, : clip or None].flatten(0, 1)[None].chunk(2, dim=-1)  # copies only if tokens are left out
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
