"""House kernel: neighbour sampling; one persistent launch walks all hops and reads adjacency lists at their owners.

Ranks exchange no requests, no answers and no counts per hop. Every rank copies its lists into memory that the others
can read; then each rank walks alone. Prefix sums give an edge's number before its neighbour is read, so edges are
written in order. A node appears first at the smallest number of an edge that leads to it. The host reads two sizes at
the end.
"""

import itertools

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm
from sandbox.kit.blocks import cuda_text
from sandbox.kit.blocks.side_stream import on_host, read_early

SOURCE = r"""
const int TEAM = 8;  // threads that share a frontier node's neighbours
// The whole block calls this: returns the sum of the totals of the blocks before this one; `all` becomes the sum over all blocks.
// The grid must not have more blocks than a block has threads.
static __device__ u32 sum_before_block(const u32* totals, u32& all) {
    __shared__ u32 own;
    const u32 before = sum_before(threadIdx.x < gridDim.x ? totals[threadIdx.x] : 0, all);
    if (threadIdx.x == blockIdx.x) own = before;
    __syncthreads();
    return own;
}
// Walks all hops. n: seeds, nodes of the graph, this rank's edges, hops, room for nodes, room for edges, then the fanouts.
// all_starts [nodes + 1], all_neighbours: this rank's lists, symmetric. counters: two words that are zero before and after.
// scratch: first [nodes], place [nodes], offset, start and taken [room for nodes], seen [room for edges], totals [2][blocks].
// first: number of a node's first appearance, seeds before edges; place: its index in `node`.
// edges: [3][room for edges]: row, col, edge. sizes: {nodes, edges} that were found.
extern "C" __global__ void __launch_bounds__(512) walk(Px px, const i64* seeds, const i64* row_ptr, const i64* col,
        const i64* owner, u32* all_starts, u32* all_neighbours, u32* counters, u32* scratch, i64* node, i64* edges, i64* sizes,
        PxNumbers n) {
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 seeded = n.at[0], nodes = n.at[1], most = n.at[5];
    u32 *first = scratch, *place = first + nodes, *offset = place + nodes, *start = offset + n.at[4], *taken = start + n.at[4];
    u32 *seen = taken + n.at[4], *totals = seen + most, *more_totals = totals + gridDim.x;
    const i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x, threads = (i64)gridDim.x * blockDim.x;
    u32 barriers = 0;
    #pragma unroll 4
    for (i64 i = thread; i <= nodes; i += threads) all_starts[i] = (u32)row_ptr[i];
    #pragma unroll 4
    for (i64 i = thread; i < n.at[2]; i += threads) all_neighbours[i] = (u32)col[i];
    for (i64 i = thread; i < nodes; i += threads) first[i] = 0xffffffffu;
    px_grid_barrier(counters, ++barriers);
    px_turn_barrier(px, blockIdx.x, turn);  // the lists of all ranks are complete, and stay until the call after the next
    for (i64 i = thread; i < seeded; i += threads) {
        const i64 v = seeds[i];
        node[i] = v, place[v] = first[v] = (u32)i;
    }
    px_grid_barrier(counters, ++barriers);
    i64 begin = 0, found = seeded, done = 0;  // the frontier is node[begin] to node[found - 1]; `done` edges are complete
    for (int hop = 0; hop < n.at[3] && begin < found; ++hop) {
        const i64 fanout = n.at[6 + hop], share = (found - begin + gridDim.x - 1) / gridDim.x;
        const i64 mine = min(begin + blockIdx.x * share, found), mine_end = min(mine + share, found);
        u32 running = 0, all, fresh;
        for (i64 tile = mine; tile < mine_end; tile += blockDim.x) {  // count the neighbours to take of frontier nodes
            const i64 i = tile + threadIdx.x;
            u32 take = 0;
            if (i < mine_end) {
                const i64 v = node[i];
                const u32* starts = px_at(px, (int)owner[v], all_starts);
                const u32 from = starts[v], degree = starts[v + 1] - from;
                take = fanout >= 0 && fanout < degree ? (u32)fanout : degree;
                start[i] = from, taken[i] = take;
            }
            const u32 before = sum_before(take, all);
            if (i < mine_end) offset[i] = running + before;
            running += all;
        }
        if (threadIdx.x == 0) totals[blockIdx.x] = running;
        px_grid_barrier(counters, ++barriers);
        const i64 base = done + sum_before_block(totals, all), until = done + all;
        for (i64 i = mine + threadIdx.x / TEAM; i < mine_end; i += blockDim.x / TEAM) {  // write the edges
            const u32* list = px_at(px, (int)owner[node[i]], all_neighbours) + start[i];
            for (u32 j = threadIdx.x % TEAM; j < taken[i]; j += TEAM) {
                const u32 u = list[j];
                const i64 e = base + offset[i] + j;
                seen[e] = u, edges[most + e] = i, edges[2 * most + e] = start[i] + j;
                atomicMin(first + u, (u32)(seeded + e));
            }
        }
        px_grid_barrier(counters, ++barriers);
        const i64 part = (until - done + gridDim.x - 1) / gridDim.x;
        const i64 own = min(done + blockIdx.x * part, until), own_end = min(own + part, until);
        running = 0;
        for (i64 tile = own; tile < own_end; tile += blockDim.x) {  // count nodes that appear for the first time
            const i64 e = tile + threadIdx.x;
            running += __syncthreads_count(e < own_end && first[seen[e]] == (u32)(seeded + e));
        }
        if (threadIdx.x == 0) more_totals[blockIdx.x] = running;
        px_grid_barrier(counters, ++barriers);
        i64 at = found + sum_before_block(more_totals, fresh);
        for (i64 tile = own; tile < own_end; tile += blockDim.x) {  // append them: the next frontier
            const i64 e = tile + threadIdx.x;
            const bool is_new = e < own_end && first[seen[e]] == (u32)(seeded + e);
            const u32 before = sum_before(is_new, all);
            if (is_new) node[at + before] = seen[e], place[seen[e]] = (u32)(at + before);
            at += all;
        }
        px_grid_barrier(counters, ++barriers);
        begin = found, found += fresh, done = until;
    }
    for (i64 e = thread; e < done; e += threads) edges[e] = place[seen[e]];
    if (thread == 0) sizes[0] = found, sizes[1] = done;
    if (px_last_block(counters + 1, gridDim.x) && threadIdx.x == 0) *counters = 0;
}
"""
kernels = cuda.lazy(cuda_text("prefix") + SOURCE)
BLOCKS, THREADS = 128, 512
HOPS = 58
"""Most fanouts that fit into the kernel's parameters beside six sizes."""


def solution(
    seed_nodes: torch.Tensor,
    fanouts: list[int],
    local_adj_row_ptr: torch.Tensor,
    local_adj_col: torch.Tensor,
    node_to_rank: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    replace: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """seed_nodes [s] distinct, local_adj_row_ptr [Nn + 1], local_adj_col [E_r], node_to_rank [Nn], all int64.

    Takes the first min(fanout, degree) neighbours, all of them for a negative fanout; `replace` is ignored. Returns node, row,
    col and edge, int64. There must be fewer than 2^32 nodes and edges.
    """
    seeds, row_ptr, col, owner = (x.contiguous() for x in (seed_nodes, local_adj_row_ptr, local_adj_col, node_to_rank))
    use_kernel = seeds.is_cuda and len(fanouts) <= HOPS
    walk = kernels().walk if use_kernel else None  # compiled before any barrier
    team = symm.team(group)
    lengths = [length for (length,) in team.gather_numbers(len(col))]
    # Two buffers are enough: a rank fills its lists for call e+2 after the barrier of call e+1, and all ranks read
    # those of call e before that barrier.
    dtype = torch.int32 if use_kernel else torch.int64
    starts, lists = team.room(len(row_ptr), dtype, "starts"), team.room(max(lengths), dtype, "lists")
    if walk is None:
        starts[: len(row_ptr)].copy_(row_ptr)
        lists[: len(col)].copy_(col)
        team.barrier()
        return by_library(seeds, fanouts, team.peers(starts), team.peers(lists), owner)
    nodes, widths = len(owner), itertools.accumulate(fanouts, lambda width, fanout: width * fanout, initial=len(seeds))
    # No node is expanded twice, so there are no more edges than in the graph.
    most = sum(lengths) if min(fanouts, default=0) < 0 else min(sum(widths), sum(lengths))
    most_nodes = min(nodes, len(seeds) + most)
    words = 2 * nodes + 3 * most_nodes + most + 2 * BLOCKS
    scratch = torch.empty(words, dtype=torch.int32, device=seeds.device)
    node, edges, sizes = seeds.new_empty(most_nodes), seeds.new_empty(3, most), on_host(2)
    counters = team.empty(2, torch.int32, "counters")
    given = [x.data_ptr() for x in (seeds, row_ptr, col, owner, starts, lists, counters, scratch, node, edges, sizes)]
    numbers = [len(seeds), nodes, len(col), len(fanouts), most_nodes, most, *fanouts]
    walk.cooperative[BLOCKS, THREADS](team.px, *given, numbers)
    found, done = read_early(sizes)()
    return node[:found], edges[0, :done], edges[1, :done], edges[2, :done]


def by_library(
    seeds: torch.Tensor, fanouts: list[int], starts: list[torch.Tensor], lists: list[torch.Tensor], owner: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Samples by library calls, hop after hop; starts and lists by rank, in memory that this rank can read."""

    def looked_up(tables: list[torch.Tensor], owners: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        values = torch.empty_like(places)
        for rank, table in enumerate(tables):
            asked = owners == rank
            values[asked] = table[places[asked]]
        return values

    first, place = torch.full_like(owner, torch.iinfo(torch.int64).max), torch.empty_like(owner)
    numbers = torch.arange(len(seeds), device=seeds.device)
    first[seeds] = place[seeds] = numbers
    frontier, found, done = seeds, len(seeds), 0
    nodes, seen, cols, edges = [seeds], [seeds[:0]], [seeds[:0]], [seeds[:0]]
    for fanout in fanouts:
        owners = owner[frontier]
        begin = looked_up(starts, owners, frontier)
        taken = looked_up(starts, owners, frontier + 1) - begin
        if fanout >= 0:
            taken = taken.clamp(max=fanout)
        shift = begin - (taken.cumsum(0) - taken)
        positions = shift.repeat_interleave(taken)
        positions += torch.arange(len(positions), device=seeds.device)
        neighbours = looked_up(lists, owners.repeat_interleave(taken), positions)
        numbers = torch.arange(len(neighbours), device=seeds.device) + (len(seeds) + done)
        first.scatter_reduce_(0, neighbours, numbers, "amin")
        cols.append(place[frontier].repeat_interleave(taken))
        frontier = neighbours[first[neighbours] == numbers]
        place[frontier] = torch.arange(found, found + len(frontier), device=seeds.device)
        found, done = found + len(frontier), done + len(neighbours)
        nodes.append(frontier)
        seen.append(neighbours)
        edges.append(positions)
    return torch.cat(nodes), place[torch.cat(seen)], torch.cat(cols), torch.cat(edges)
