"""House kernel: feature fetch; all ranks get all ids, owners store rows at their final places; nothing is sorted."""

import itertools
from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.side_stream import beside, join, mark

kernel_for = cuda.lazy(r"""
// Sends this rank's queries to all ranks, then stores the rows that each rank queries in its features. table: this rank's rows of
// `width` elements, `shard` rows per rank; ids: this rank's queries. lists: [W][most], the queries of all ranks, asked.at[r] of
// rank r; features: rows of `width`; both symmetric. A launch serves places since to until - 1 of all lists. A block serves the
// same places of each list, so it only reads queries that the same block of the other ranks has sent.
extern "C" __global__ void __launch_bounds__(512, 2) fetch(Px px, const TYPE* table, const i64* ids, i64* lists, TYPE* features,
        PxNumbers asked, i64 most, i64 since, i64 until, i64 shard, i64 width) {
    __shared__ i64 from[512], to[512];
    __shared__ u32 found;
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 share = (until - since + gridDim.x - 1) / gridDim.x, first = since + blockIdx.x * share;
    const i64 last = min(first + share, until);
    for (int away = 0; away < px.world; ++away) {
        i64* there = px_at(px, (px.rank + away) % px.world, lists) + px.rank * most;
        const i64 end = min(last, asked.at[px.rank]);
        for (i64 i = first + threadIdx.x; i < end; i += blockDim.x) there[i] = ids[i];
    }
    px_turn_barrier(px, blockIdx.x, turn);
    const int each = 16 / sizeof(TYPE);
    const u32 words = (width + each - 1) / each, step = blockDim.x;
    for (int away = 1; away <= px.world; ++away) {  // this rank's own queries last: they need no link
        const int reader = (px.rank + away) % px.world;
        const volatile i64* list = lists + reader * most;
        TYPE* there = px_at(px, reader, features);
        const i64 end = min(last, asked.at[reader]);
        for (i64 begin = first; begin < end; begin += blockDim.x) {
            if (threadIdx.x == 0) found = 0;
            __syncthreads();
            const i64 place = begin + threadIdx.x;
            if (place < end) {
                const i64 id = list[place];
                if (min(id / shard, (i64)px.world - 1) == px.rank) {
                    const u32 at = atomicAdd(&found, 1u);
                    from[at] = id - px.rank * shard;
                    to[at] = place;
                }
            }
            __syncthreads();
            const u32 all = found * words;
            for (u32 i = threadIdx.x; i < all; i += 4 * step) {
                uint4 part[4];
                #pragma unroll  // all loads are in flight before the first store
                for (int k = 0; k < 4; ++k) {
                    const u32 word = i + k * step;
                    if (word < all) part[k] = px_ld_part(table + from[word / words] * width, word % words * each, width);
                }
                #pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const u32 word = i + k * step;
                    if (word < all) px_st_part(there + to[word / words] * width, word % words * each, width, part[k]);
                }
            }
            __syncthreads();
        }
    }
    px_turn_barrier(px, blockIdx.x, turn + 1);  // the rows of all ranks have arrived
}
""")
BLOCKS, THREADS = 264, 512
"""Two blocks on each multiprocessor; a block has barriers with the same block of every rank."""
LARGE = 16 << 20
"""Bytes of features from which they are fetched in CHUNKS, each multiplied while the next one arrives."""
CHUNKS = 2

symm.reserve(2 << 30)


def solution(
    local_embedding_shard: torch.Tensor,
    input_node_ids: torch.Tensor,
    proj_matrix: torch.Tensor,
    num_total_nodes: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """local_embedding_shard [rows, D], input_node_ids [Q] int64, proj_matrix [D, Dout] -> [Q, Dout].

    With Ns = ceil(num_total_nodes / W), rank r holds table rows r*Ns up to (r+1)*Ns (fewer on the last
    ranks). Row i of the result is the table row of input_node_ids[i] times this rank's proj_matrix. Q may differ between ranks.
    """
    team = symm.team(group)
    if team.world == 1:
        return local_embedding_shard[input_node_ids] @ proj_matrix
    if input_node_ids.is_cuda:
        kernel_for(cuda.unit_of(local_embedding_shard))  # before the ranks exchange: see `cuda.lazy`
    shard, width = -(-num_total_nodes // team.world), local_embedding_shard.shape[1]
    asked = [count for (count,) in team.gather_numbers(input_node_ids.numel())]
    # One buffer each is enough. A launch stores rows at a rank after a barrier with that rank's launch, which follows
    # the product of the previous call. A rank writes its next queries after the previous launch, in which all ranks
    # have answered.
    lists = team.room(team.world * max(asked), torch.int64, "queries", ring=1)
    room = team.room(max(asked) * width, local_embedding_shard.dtype, "features", ring=1)
    features = (
        room[: input_node_ids.numel() * width].view(-1, width) if width else room.new_empty((asked[team.rank], 0))
    )
    if not room.is_cuda:
        fetch_on_cpu(local_embedding_shard, input_node_ids, lists, room, asked, shard, team)
        return features @ proj_matrix
    table, ids = local_embedding_shard.contiguous(), input_node_ids.contiguous()
    unit = cuda.unit_of(table)
    kernel = kernel_for(unit).fetch
    addresses = table.data_ptr(), ids.data_ptr(), lists.data_ptr(), room.data_ptr()
    most, sizes = (
        max(asked),
        (shard, width * table.element_size() // unit.itemsize),
    )  # the same on all ranks, as are the launches
    if most * width * table.element_size() < LARGE:
        blocks = min(max(-(-most // 16), 1), BLOCKS)
        kernel[blocks, THREADS](team.px, *addresses, asked, most, 0, most, *sizes)
        return features @ proj_matrix
    result = features.new_empty((len(features), proj_matrix.shape[1]))
    ends = [most * chunk // CHUNKS for chunk in range(CHUNKS + 1)]
    with beside():
        arrived = []
        for since, until in itertools.pairwise(ends):
            blocks = min(max(-(-most // 16), 1), -(-BLOCKS // 4))  # leave multiprocessors to the product
            kernel[blocks, THREADS](team.px, *addresses, asked, most, since, until, *sizes)
            arrived.append(mark())
    for place, since, until in zip(arrived, ends, ends[1:], strict=False):
        join(place)
        torch.mm(features[since:until], proj_matrix, out=result[since:until])
    return result


def fetch_on_cpu(
    table: torch.Tensor,
    ids: torch.Tensor,
    lists: torch.Tensor,
    room: torch.Tensor,
    asked: list[int],
    shard: int,
    team: Any,
) -> None:
    """Fetches rows on CPU ranks, which read the queries in the peers' memory and write the rows there."""
    lists[: ids.numel()] = ids
    team.barrier()
    width = table.shape[1]
    for peer in team.order():
        queries = team.peers(lists)[peer][: asked[peer]]
        owner = torch.div(queries, shard, rounding_mode="floor").clamp_(max=team.world - 1)
        mine = (owner == team.rank).nonzero().flatten()
        features = team.peers(room)[peer][: asked[peer] * width].view(asked[peer], width)
        features[mine] = table[queries[mine] - team.rank * shard]
    team.barrier()
