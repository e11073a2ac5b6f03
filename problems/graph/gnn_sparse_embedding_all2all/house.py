"""House kernel: push by owner; pairs are counted, not sorted, and stored at their final places.

The host waits for one number.
"""

import math
from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.side_stream import read_early

kernel_for = cuda.lazy(r"""
// A pair is an id and its row of values. A block works on `share` consecutive pairs, so that a stable order of the results only
// depends on the counts of the blocks before it.
const int SLOT = 1000;  // the signal slot of the exchange of counts
static __device__ int owner_of(i64 id, int world) {
    const int left = id % world;
    return left < 0 ? left + world : left;
}
// Counts pairs by owner. counts, places: [blocks][W]; bases: [W]; boxes: [2 (turns)][W (senders)][W] low-latency words,
// symmetric; done: the counter of px_last_block. Block b stores its pairs at rank d from place bases[d] + places[b][d] on.
// received: the number of pairs that this rank receives.
extern "C" __global__ void __launch_bounds__(512) count_owners(Px px, const i64* idx, i64* counts, i64* places, i64* bases,
        i64* received, u64* boxes, u32* done, i64 n, i64 share) {
    __shared__ u32 owned[PX_MAX_WORLD], table[PX_MAX_WORLD * PX_MAX_WORLD];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, world = px.world;
    if (threadIdx.x < PX_MAX_WORLD) owned[threadIdx.x] = 0;
    __syncthreads();
    const i64 first = blockIdx.x * share, end = min(first + share, n);
    u32 mine = 0;  // pairs of this warp that rank `lane` owns
    for (i64 begin = first + warp * 32; begin < end; begin += blockDim.x) {
        const int owner = begin + lane < end ? owner_of(idx[begin + lane], world) : -1;
        for (int d = 0; d < world; ++d) {
            const u32 many = __popc(__ballot_sync(0xffffffffu, owner == d));
            if (lane == d) mine += many;
        }
    }
    if (lane < world) atomicAdd(&owned[lane], mine);
    __syncthreads();
    if (threadIdx.x < world) counts[blockIdx.x * world + threadIdx.x] = owned[threadIdx.x];
    if (!px_last_block(done, gridDim.x)) return;
    const u32 turn = px_turn(px, SLOT);
    for (int d = warp; d < world; d += warps) {
        u32 running = 0;
        for (int begin = 0; begin < gridDim.x; begin += 32) {
            const int block = begin + lane;
            const u32 many = block < gridDim.x ? (u32)((const volatile i64*)counts)[block * world + d] : 0;
            u32 until = many;  // sum over the lanes up to this one
            #pragma unroll
            for (int away = 1; away < 32; away *= 2) {
                const u32 before = __shfl_sync(0xffffffffu, until, max(lane - away, 0));
                if (lane >= away) until += before;
            }
            if (block < gridDim.x) places[block * world + d] = running + until - many;
            running += __shfl_sync(0xffffffffu, until, 31);
        }
        if (lane == 0) owned[d] = running;
    }
    __syncthreads();
    u64* box = boxes + (turn & 1) * world * world;
    const int i = threadIdx.x;
    if (i < world * world) {
        px_st_ll(px_at(px, i / world, box) + px.rank * world + i % world, owned[i % world], turn);
        table[i] = px_ld_ll(box + i, turn);
    }
    __syncthreads();
    if (i < world) {
        i64 base = 0;
        for (int sender = 0; sender < px.rank; ++sender) base += table[sender * world + i];
        bases[i] = base;
    }
    if (i == 0) {
        i64 all = 0;
        for (int sender = 0; sender < world; ++sender) all += table[sender * world + px.rank];
        *received = all;
    }
    px_reach(px, SLOT, turn);  // two turns: a rank that sends turn t+2 has all words of turn t+1, so all have read turn t
}
// Stores pairs at their final places at their owners. idx: [n]; value: [n][width]; ids, rows: the results, symmetric.
extern "C" __global__ void __launch_bounds__(512) push(Px px, const i64* idx, const TYPE* value, i64* ids, TYPE* rows,
        const i64* places, const i64* bases, i64 n, i64 share, i64 width) {
    __shared__ i64 next[PX_MAX_WORLD], to[512];
    __shared__ u32 many[16][PX_MAX_WORLD];
    __shared__ int owners[512];
    const u32 turn = px_turn(px, blockIdx.x);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, each = 16 / sizeof(TYPE);
    const u32 words = (width + each - 1) / each, step = blockDim.x;
    if (threadIdx.x < px.world) next[threadIdx.x] = bases[threadIdx.x] + places[blockIdx.x * px.world + threadIdx.x];
    const i64 first = blockIdx.x * share, end = min(first + share, n);
    for (i64 begin = first; begin < end; begin += blockDim.x) {
        const i64 i = begin + threadIdx.x;
        const i64 id = i < end ? idx[i] : 0;
        const int owner = i < end ? owner_of(id, px.world) : -1;
        u32 before = 0;  // pairs of the same owner in lower lanes
        for (int d = 0; d < px.world; ++d) {
            const u32 votes = __ballot_sync(0xffffffffu, owner == d);
            if (owner == d) before = __popc(votes & ((1u << lane) - 1));
            if (lane == 0) many[warp][d] = __popc(votes);
        }
        __syncthreads();
        if (owner >= 0) {
            i64 place = next[owner] + before;
            for (int w = 0; w < warp; ++w) place += many[w][owner];
            px_at(px, owner, ids)[place] = id;
            owners[threadIdx.x] = owner;
            to[threadIdx.x] = place;
        }
        __syncthreads();
        if (threadIdx.x < px.world)
            for (int w = 0; w < warps; ++w) next[threadIdx.x] += many[w][threadIdx.x];
        const u32 all = (u32)min(end - begin, (i64)blockDim.x) * words;
        for (u32 word = threadIdx.x; word < all; word += 4 * step) {
            uint4 part[4];
            #pragma unroll  // all loads are in flight before the first store
            for (int k = 0; k < 4; ++k) {
                const u32 at = word + k * step;
                if (at < all) part[k] = px_ld_part(value + (begin + at / words) * width, at % words * each, width);
            }
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                const u32 at = word + k * step, row = at / words;
                if (at < all) px_st_part(px_at(px, owners[row], rows) + to[row] * width, at % words * each, width, part[k]);
            }
        }
        __syncthreads();
    }
    px_turn_barrier(px, blockIdx.x, turn);  // the pairs of all ranks have arrived
}
""")
BLOCKS, THREADS = 128, 512

symm.reserve(6 << 30)  # two results of the largest sizes


def solution(
    idx: torch.Tensor, value: torch.Tensor, num_nodes: int, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """idx [n] int64, value [n, ...] -> the pairs this rank owns: recv_idx [R] int64, recv_value [R, ...].

    Rank i mod W owns id i. Pairs are ordered by sender, then as in the sender's arguments; n < 2^32 may differ between
    ranks and be zero. num_nodes does not change the result. With one rank the arguments are returned.
    """
    team = symm.team(group)
    world = team.world
    if world == 1:
        return idx, value
    if idx.is_cuda:
        kernel_for(cuda.unit_of(value))  # before the ranks exchange: see `cuda.lazy`
    lengths = [length for (length,) in team.gather_numbers(idx.numel())]
    total, width = sum(lengths), math.prod(value.shape[1:])
    # Two results, each for all pairs, are enough: a rank stores for call e+2 after the barrier of call e+1, and all
    # ranks read the result of call e before that barrier.
    ids, rows = team.room(total, torch.int64, "ids"), team.room(total * width, value.dtype, "rows")
    idx, value = idx.contiguous(), value.contiguous()
    if idx.is_cuda:
        received = on_gpus(idx, value, ids, rows, max(lengths), team)
    else:
        received = on_cpu(idx, value.reshape(len(idx), width), ids, rows, team)
    return ids[:received], rows[: received * width].view(received, *value.shape[1:])


def on_gpus(idx: torch.Tensor, value: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor, most: int, team: Any) -> int:
    """Fills the results and returns how many pairs arrive; `most`: the largest number of pairs of any rank."""
    world, n = team.world, idx.numel()
    blocks = min(max(-(-most // 32), 1), BLOCKS)  # the same on all ranks
    share = -(-n // blocks)
    counts, places = torch.empty((2, blocks, world), dtype=torch.int64, device=idx.device)
    bases = torch.empty(world + 1, dtype=torch.int64, device=idx.device)
    found = bases[world:]
    boxes = team.empty((2, world, world), torch.int64, "boxes")
    done = team.empty(1, torch.int32, "done")  # zero at first, and after every launch
    tables = counts.data_ptr(), places.data_ptr(), bases.data_ptr(), found.data_ptr()
    unit = cuda.unit_of(value)
    kernels = kernel_for(unit)
    kernels.count_owners[blocks, THREADS](team.px, idx, *tables, boxes.data_ptr(), done.data_ptr(), n, share)
    numbers = read_early(found)
    width = rows.element_size() // unit.itemsize * math.prod(value.shape[1:])
    addresses = value.data_ptr(), ids.data_ptr(), rows.data_ptr(), places.data_ptr(), bases.data_ptr()
    kernels.push[blocks, THREADS](team.px, idx, *addresses, n, share, width)
    return int(numbers()[0])


def on_cpu(idx: torch.Tensor, value: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor, team: Any) -> int:
    """Fills the results on CPU ranks: processes exchange the counts and store pairs in the peers' memory.

    Returns how many pairs arrive.
    """
    world, rank, width = team.world, team.rank, value.shape[1]
    owner = idx.remainder(world)
    order = owner.argsort(stable=True)
    table = team.gather_numbers(*torch.bincount(owner, minlength=world).tolist())
    begin = 0
    for peer in range(world):
        chosen = order[begin : begin + table[rank][peer]]
        begin += len(chosen)
        place = sum(row[peer] for row in table[:rank])
        team.peers(ids)[peer][place : place + len(chosen)] = idx[chosen]
        team.peers(rows)[peer][place * width : (place + len(chosen)) * width] = value[chosen].flatten()
    team.barrier()
    return sum(row[rank] for row in table)
