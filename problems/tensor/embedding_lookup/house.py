"""House kernel: embedding lookup; owners store rows at their final places, and a repeated row travels once.

A list of requested rows is counted by owner, then every owner gets its part: the row for each place. If several places
request the same row of a peer, all write their number to the same word. The last writer is sent the row, the others
copy it on arrival. There are four launches, and the host does not wait for the device. The link limits the speed, then
the copies of repeated rows.
"""

import math

import torch

from sandbox.kit import cuda, symm

kernel_for = cuda.lazy(r"""
// Counts a rank's ids by owner. ids: [n], numbers of rows; owner o has the `owned` rows from o * owned on. A chunk is the `each`
// ids of one block. counts: [chunks][W], the number of ids of each owner. chosen: [W * owned], for each row of a peer that is
// wanted, one of its places in ids.
extern "C" __global__ void __launch_bounds__(512) count_owners(Px px, const i64* ids, u32* counts, int* chosen, i64 n,
        i64 owned, i64 each) {
    __shared__ u32 found[PX_MAX_WORLD];
    if (threadIdx.x < px.world) found[threadIdx.x] = 0;
    __syncthreads();
    const i64 end = min(n, (blockIdx.x + 1) * each);
    for (i64 i = blockIdx.x * each + threadIdx.x; i < end; i += blockDim.x) {
        const i64 id = ids[i];
        atomicAdd(&found[id / owned], 1u);
        if (id / owned != px.rank) chosen[id] = (int)i;  // any one of equal ids
    }
    __syncthreads();
    if (threadIdx.x < px.world) counts[(i64)blockIdx.x * px.world + threadIdx.x] = found[threadIdx.x];
}
// Asks the owners for rows. places: [n], the row of the result for each id. twins: [n], -1 if the owner stores this row, else the
// place in ids of an equal id, whose row is copied. wanted: [W (askers)][pitch] at every owner, symmetric: numbers of rows in its
// shard, -1 for a row that the asker copies. heads: [W (askers)] at every owner, symmetric: the first of these rows in the
// asker's result, and their number.
extern "C" __global__ void __launch_bounds__(512) ask_owners(Px px, const i64* ids, const u32* counts, const int* chosen,
        int* places, int* twins, int* wanted, uint2* heads, i64 n, i64 owned, i64 each, i64 pitch) {
    __shared__ u32 total[PX_MAX_WORLD], next[PX_MAX_WORLD], start[PX_MAX_WORLD], in_warp[16][PX_MAX_WORLD];
    const u32 turn = px_turn(px, blockIdx.x);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int owner = warp; owner < px.world; owner += warps) {
        u32 all = 0, before = 0;
        for (int chunk = lane; chunk < gridDim.x; chunk += 32) {
            const u32 found = counts[(i64)chunk * px.world + owner];
            all += found;
            if (chunk < blockIdx.x) before += found;
        }
        for (int away = 16; away > 0; away /= 2) {
            all += __shfl_xor_sync(0xffffffffu, all, away);
            before += __shfl_xor_sync(0xffffffffu, before, away);
        }
        if (lane == 0) total[owner] = all, next[owner] = before;
    }
    __syncthreads();
    if (threadIdx.x < px.world) {
        u32 earlier = 0;
        for (int owner = 0; owner < threadIdx.x; ++owner) earlier += total[owner];
        start[threadIdx.x] = earlier;
        if (blockIdx.x == 0) px_at(px, threadIdx.x, heads)[px.rank] = make_uint2(earlier, total[threadIdx.x]);
    }
    __syncthreads();
    const i64 end = min(n, (blockIdx.x + 1) * each);
    for (i64 tile = blockIdx.x * each; tile < end; tile += blockDim.x) {
        const i64 i = tile + threadIdx.x, id = i < end ? ids[i] : 0;
        const int own = i < end ? (int)(id / owned) : -1;
        u32 number = 0;  // index among the ids of the same owner
        for (int owner = 0; owner < px.world; ++owner) {
            const u32 same = __ballot_sync(0xffffffffu, own == owner);
            if (own == owner) number = next[owner] + __popc(same & ((1u << lane) - 1));
            if (lane == 0) in_warp[warp][owner] = __popc(same);
        }
        __syncthreads();
        if (own >= 0) {
            for (int w = 0; w < warp; ++w) number += in_warp[w][own];
            const int twin = own == px.rank || chosen[id] == i ? -1 : chosen[id];
            places[i] = (int)(start[own] + number);
            twins[i] = twin;
            px_at(px, own, wanted)[px.rank * pitch + number] = twin < 0 ? (int)(id - own * owned) : -1;
        }
        __syncthreads();
        if (threadIdx.x < px.world)
            for (int w = 0; w < warps; ++w) next[threadIdx.x] += in_warp[w][threadIdx.x];
        __syncthreads();
    }
    px_turn_barrier(px, blockIdx.x, turn);  // all ranks have asked
}
// All lanes of a warp call this: copies four rows of `width` elements, from[k] to to[k]. Where from[k] is 0, there is no row.
template <class T> static __device__ void copy_four(const T* const* from, T* const* to, i64 width) {
    const int each = 16 / sizeof(T);
    for (i64 at = threadIdx.x % 32 * each; at < width; at += 32 * each) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 4; ++k)
            if (from[k]) part[k] = px_ld_part(from[k], at, width);
        #pragma unroll
        for (int k = 0; k < 4; ++k)
            if (from[k]) px_st_part(to[k], at, width, part[k]);
    }
}
// Stores the wanted rows in the askers' results. shard: [owned][width]; result: [n][width], symmetric. Consecutive rows go to
// different askers, so that stores to this rank's own memory and to the peers' overlap.
extern "C" __global__ void __launch_bounds__(512) answer(Px px, const TYPE* shard, const int* wanted, const uint2* heads,
        TYPE* result, i64 pitch, i64 width) {
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 warp = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, warps = (i64)gridDim.x * (blockDim.x / 32);
    u32 most = 0;
    for (int asker = 0; asker < px.world; ++asker) most = max(most, heads[asker].y);
    for (i64 first = warp; first < px.world * (i64)most; first += 4 * warps) {
        const TYPE* from[4];
        TYPE* to[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            const i64 i = first + k * warps, number = i / px.world;
            const int asker = (int)(px.rank + i % px.world) % px.world;
            const uint2 head = heads[asker];
            const int row = number < head.y ? wanted[asker * pitch + number] : -1;
            from[k] = row < 0 ? 0 : shard + row * width;
            to[k] = px_at(px, asker, result) + (head.x + number) * width;
        }
        copy_four(from, to, width);
    }
    px_turn_barrier(px, blockIdx.x, turn);  // all ranks' rows have arrived
}
// Copies the rows of equal ids within the result, from their twins' rows.
extern "C" __global__ void __launch_bounds__(512) repeat(const int* places, const int* twins, TYPE* result, i64 n, i64 width) {
    const i64 warp = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, warps = (i64)gridDim.x * (blockDim.x / 32);
    for (i64 first = warp; first < n; first += 4 * warps) {
        const TYPE* from[4];
        TYPE* to[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            const i64 i = first + k * warps;
            const int twin = i < n ? twins[i] : -1;
            from[k] = twin < 0 ? 0 : result + places[twin] * width;
            to[k] = result + (i < n ? places[i] : 0) * width;
        }
        copy_four(from, to, width);
    }
}
// Both for elements of 2 and of 4 bytes; larger elements count as several.
""")
BLOCKS, THREADS = 264, 512

symm.reserve(3 << 30)  # two results of the largest sizes


def solution(indices: torch.Tensor, local_shard: torch.Tensor) -> torch.Tensor:
    """indices [n] int64 in [0, W·S), local_shard [S, D] -> [n, D]: the requested rows, grouped by owner.

    Rank r owns rows r·S to (r+1)·S − 1. Rows of owner 0 come first, then those of owner 1...; inside a group
    they keep the order of `indices`. n may differ between the ranks and may be 0; n and S are below 2^31.
    """
    team = symm.connect()
    world, n, owned, shape = team.world, indices.numel(), local_shard.shape[0], local_shard.shape[1:]
    width = math.prod(shape)
    if world == 1:
        return local_shard[indices]
    lengths = [length for (length,) in team.gather_numbers(n)]
    longest = max(lengths)
    if longest * width == 0:
        return local_shard.new_empty((n, *shape))
    # Two results are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the result of
    # call e before that barrier.
    room = team.room(longest * width, local_shard.dtype, "rows", ring=None)
    result = room[: n * width].view(n, *shape)
    if not local_shard.is_cuda:
        order = torch.argsort(indices // owned, stable=True)
        ids = team.room(longest, torch.int64, "ids")
        ids[:n] = indices[order]
        team.barrier()
        for asked, length, place in zip(team.peers(ids), lengths, team.peers(room), strict=True):
            rows = asked[:length] - team.rank * owned
            first, here = int((rows < 0).sum()), rows[(rows >= 0) & (rows < owned)]
            place[first * width : (first + here.numel()) * width] = local_shard[here].flatten()
        team.barrier()
        return result
    device, shard, ids = indices.device, local_shard.contiguous(), indices.contiguous()
    chunks = min(-(-longest // THREADS), BLOCKS)
    each = -(-longest // chunks)
    sizes = [world * chunks, world * owned, n, n]
    counts, chosen, places, twins = torch.split(torch.empty(sum(sizes), dtype=torch.int32, device=device), sizes)
    # One buffer each is enough: a rank writes it again after the barrier at the end of `answer`.
    wanted = team.room(world * longest, torch.int32, "wanted", ring=1)
    heads = team.empty((world, 2), torch.int32, "heads")
    unit = cuda.unit_of(shard)
    kernels, scaled = kernel_for(unit), width * shard.element_size() // unit.itemsize
    kernels.count_owners[chunks, THREADS](team.px, ids, counts, chosen, n, owned, each)
    launch = kernels.ask_owners[chunks, THREADS]
    launch(team.px, ids, counts, chosen, places, twins, wanted, heads, n, owned, each, longest)
    blocks = min(-(-world * longest // (THREADS // 32)), BLOCKS)
    kernels.answer[blocks, THREADS](team.px, shard.data_ptr(), wanted, heads, room.data_ptr(), longest, scaled)
    kernels.repeat[min(-(-n // (THREADS // 32)) or 1, BLOCKS), THREADS](places, twins, room.data_ptr(), n, scaled)
    return result
