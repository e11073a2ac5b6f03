"""House kernel: distributed sort; 16-bit keys are not sent, ranks sum the counts of each key and write their blocks.

Keys of 32 bits are sorted on their own rank. Every rank then finds the two exact ends of its block in all sorted lists,
pulls the keys between them, and merges the runs by counting, so no block needs rebalancing. The processes exchange the
lengths, so that no host waits for a GPU. Reading keys and writing the block limit the speed; with 32 bits the library's
local sort does.
"""

from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

counting = cuda.lazy(r"""
// Keys have 16 bits and sort like the numbers; bits_of is the inverse of key_of. count_keys counts how often each key occurs.
// counts: [65536], zeros at first. Block b counts keys that equal b modulo 4, in 16-bit counters, two a word. It adds them to
// `counts` after each portion of keys, which is too short to overflow them.
const int KINDS = 65536, PORTION = 32768;
PX_DI u32 key_of(u32 bits) { return bits & 0x8000 ? ~bits & 0xffff : bits | 0x8000; }
PX_DI u32 bits_of(u32 key) { return key & 0x8000 ? key & 0x7fff : ~key & 0xffff; }
extern "C" __global__ void __launch_bounds__(512) count_keys(const u16* keys, u32* counts, i64 n) {
    __shared__ u32 pairs[KINDS / 8];
    const u32 residue = blockIdx.x % 4;
    for (i64 begin = (i64)(blockIdx.x / 4) * PORTION; begin < n; begin += (i64)(gridDim.x / 4) * PORTION) {
        for (int i = threadIdx.x; i < KINDS / 8; i += blockDim.x) pairs[i] = 0;
        __syncthreads();
        const i64 end = min(begin + PORTION, n);
        for (i64 i = begin + 8 * threadIdx.x; i < end; i += 8 * blockDim.x) {
            const uint4 part = px_ld_part(keys, i, n);
            const u32 word[4] = {part.x, part.y, part.z, part.w};
            #pragma unroll
            for (int k = 0; k < 8; ++k) {
                const u32 key = key_of(word[k / 2] >> 16 * (k % 2) & 0xffff);
                if (i + k < end && key % 4 == residue) atomicAdd(&pairs[key / 8], 1u << 16 * (key / 4 % 2));
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < KINDS / 8; i += blockDim.x) {
            if (pairs[i] & 0xffff) atomicAdd(&counts[8 * i + residue], pairs[i] & 0xffff);
            if (pairs[i] >> 16) atomicAdd(&counts[8 * i + 4 + residue], pairs[i] >> 16);
        }
        __syncthreads();
    }
}
// Adds up the counts of all ranks. everybody: [W][65536], symmetric; before: [65537], the number of keys of all ranks below each
// key. A block sends words of four counts, and adds up what the same block of all ranks has sent; the last block computes the
// prefix sums. done: the counter of px_last_block.
extern "C" __global__ void __launch_bounds__(512) add_counts(Px px, const u32* counts, u32* everybody, u32* before, u32* done) {
    const u32 turn = px_turn(px, blockIdx.x);
    const int first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (int i = first; i < KINDS / 4; i += step)
        for (int away = 0; away < px.world; ++away)
            px_st16(px_at(px, (px.rank + away) % px.world, everybody) + px.rank * KINDS + 4 * i, px_ld16(counts + 4 * i));
    px_turn_barrier(px, blockIdx.x, turn);
    for (int i = first; i < KINDS / 4; i += step) {
        uint4 sum = make_uint4(0, 0, 0, 0);
        for (int rank = 0; rank < px.world; ++rank) {
            const uint4 part = px_ld16(everybody + rank * KINDS + 4 * i);
            sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
        }
        px_st16(before + 4 * i, sum);
    }
    if (!px_last_block(done, gridDim.x)) return;
    __shared__ u32 sums[512], totals[16];
    const int each = KINDS / blockDim.x, own = threadIdx.x * each;
    u32 sum = 0;
    for (int i = 0; i < each; i += 4) {
        const uint4 part = px_ld16(before + own + i);
        sum += part.x + part.y + part.z + part.w;
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < blockDim.x / 32) {
        totals[threadIdx.x] = 0;
        for (int t = 0; t < 32; ++t) totals[threadIdx.x] += sums[32 * threadIdx.x + t];
    }
    __syncthreads();
    u32 running = 0;
    for (int w = 0; w < threadIdx.x / 32; ++w) running += totals[w];
    for (int t = threadIdx.x / 32 * 32; t < threadIdx.x; ++t) running += sums[t];
    for (int i = 0; i < each; i += 4) {
        const uint4 part = px_ld16(before + own + i);
        const u32 x = running, y = x + part.x, z = y + part.y, w = z + part.z;
        px_st16(before + own + i, make_uint4(x, y, z, w));
        running = w + part.w;
    }
    if (threadIdx.x == blockDim.x - 1) before[KINDS] = running;
}
// Returns the key at a place of the sorted whole: the largest key with no more than `place` keys below it.
static __device__ u32 key_at(const u32* before, u32 place) {
    u32 key = 0;
    #pragma unroll
    for (u32 half = KINDS / 2; half > 0; half /= 2)
        if (before[key + half] <= place) key += half;
    return key;
}
// Writes the n keys from place `first` of the sorted whole to `block`; a thread writes words of 8 keys.
extern "C" __global__ void __launch_bounds__(512) write_block(const u32* before, u16* block, u32 first, i64 n) {
    const i64 step = 8 * (i64)gridDim.x * blockDim.x;
    for (i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x); i < n; i += step) {
        u32 word[4] = {0, 0, 0, 0}, key = 0, until = 0;  // copies of `key` end before place `until`
        #pragma unroll
        for (int k = 0; k < 8; ++k) {
            const u32 place = first + (u32)i + k;
            if (i + k < n && place >= until) key = key_at(before, place), until = before[key + 1];
            word[k / 2] |= bits_of(key) << 16 * (k % 2);
        }
        px_st_part(block, i, n, make_uint4(word[0], word[1], word[2], word[3]));
    }
}
""")
merging = cuda.lazy(r"""
// keys: this rank's sorted keys, symmetric; rank r has lengths.at[r]. cuts: [2][W], where this rank's block begins and ends among
// the sorted keys of each rank.
PX_DI u32 order_of(float key) {  // -0 counts as 0
    const u32 bits = __float_as_uint(key + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
// Returns how many of n sorted keys are below `bound`, or with `equal_too`, how many are not above it.
static __device__ u32 count_below(const float* keys, u32 n, u32 bound, bool equal_too) {
    u32 low = 0;
    while (low < n) {
        const u32 middle = low + (n - low) / 2, order = order_of(keys[middle]);
        if (order < bound || (equal_too && order == bound)) low = middle + 1;
        else n = middle;
    }
    return low;
}
// Finds the cuts for places `first` and `end` of the sorted whole; launched with one block. The key at a place is the largest
// with no more than `place` keys below it. Each round finds four bits of it.
extern "C" __global__ void __launch_bounds__(256) find_cuts(
        Px px, float* keys, i64* cuts, PxNumbers lengths, i64 first, i64 end) {
    __shared__ u32 below[2][16], bound[2], low[2][PX_MAX_WORLD], high[2][PX_MAX_WORLD];
    px_turn_barrier(px, 0, px_turn(px, 0));  // the sorted keys of all ranks are complete
    if (threadIdx.x < 2) bound[threadIdx.x] = 0;
    for (int shift = 28; shift >= 0; shift -= 4) {
        if (threadIdx.x < 32) below[threadIdx.x / 16][threadIdx.x % 16] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < 30 * px.world; i += blockDim.x) {
            const int side = i / (15 * px.world), probe = i / px.world % 15 + 1, rank = i % px.world;
            const u32 reach = bound[side] + ((u32)probe << shift);
            atomicAdd(&below[side][probe], count_below(px_at(px, rank, keys), (u32)lengths.at[rank], reach, false));
        }
        __syncthreads();
        if (threadIdx.x < 2) {
            int probe = 0;
            while (probe < 15 && below[threadIdx.x][probe + 1] <= (threadIdx.x ? end : first)) ++probe;
            bound[threadIdx.x] += (u32)probe << shift;
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < 2 * px.world; i += blockDim.x) {
        const int side = i / px.world, rank = i % px.world;
        low[side][rank] = count_below(px_at(px, rank, keys), (u32)lengths.at[rank], bound[side], false);
        high[side][rank] = count_below(px_at(px, rank, keys), (u32)lengths.at[rank], bound[side], true);
    }
    __syncthreads();
    if (threadIdx.x < 2) {  // of equal keys, those of the lowest ranks come first
        i64 left = threadIdx.x ? end : first;
        for (int rank = 0; rank < px.world; ++rank) left -= low[threadIdx.x][rank];
        for (int rank = 0; rank < px.world; ++rank) {
            const i64 taken = min(left, (i64)(high[threadIdx.x][rank] - low[threadIdx.x][rank]));
            cuts[threadIdx.x * px.world + rank] = low[threadIdx.x][rank] + taken;
            left -= taken;
        }
    }
}
// Copies each rank's keys between the cuts to `runs`, one rank after another.
extern "C" __global__ void __launch_bounds__(512) pull_runs(Px px, float* keys, const i64* cuts, float* runs) {
    for (int rank = 0; rank < px.world; ++rank) {
        const i64 n = cuts[px.world + rank] - cuts[rank];
        const float* from = px_at(px, rank, keys) + cuts[rank];
        #pragma unroll 8
        for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) runs[i] = from[i];
        runs += n;
    }
}
// Merges the runs into `block`. A key's place is the number of keys in its own and in the other runs that come before it.
extern "C" __global__ void __launch_bounds__(512) merge_runs(const i64* cuts, const float* runs, float* block, int world) {
    const float* run = runs;
    for (int rank = 0; rank < world; ++rank) {
        const i64 n = cuts[world + rank] - cuts[rank];
        for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) {
            i64 place = i;
            const float* other = runs;
            for (int r = 0; r < world; ++r) {
                const i64 many = cuts[world + r] - cuts[r];
                if (r != rank) place += count_below(other, (u32)many, order_of(run[i]), r < rank);
                other += many;
            }
            block[place] = run[i];
        }
        run += n;
    }
}
""")
BLOCKS, THREADS = 528, 512
KINDS, PORTION, PROBES = 65536, 32768, 16

symm.reserve(2 << 30)  # two lists of the largest sizes


def solution(local_shard: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """local_shard [n_r] bfloat16, float16 or float32 without NaN; n_r may differ and be zero -> [m_r] sorted keys.

    With n < 2^32 keys in all, rank r returns the r-th contiguous block of the sorted whole; the first n mod W ranks have one
    key more than the others. The shard is not changed.
    """
    team = symm.team(group)
    lengths = [length for (length,) in team.gather_numbers(local_shard.numel())]
    n, world = sum(lengths), team.world
    ends = [0, *accumulate(n // world + (r < n % world) for r in range(world))]
    first, end = ends[team.rank], ends[team.rank + 1]
    if world == 1 and n < KINDS:
        return local_shard.sort().values  # nothing to exchange, and fewer keys than counters
    if local_shard.element_size() == 2:
        return by_counting(local_shard.contiguous(), team, group, first, end)
    keys = local_shard.sort().values
    if world == 1 or n == 0:
        return keys
    # Two lists are enough: a rank fills one for call e+2 after the barrier of call e+1, and all ranks read the list of
    # call e before that barrier.
    room = team.room(max(lengths), keys.dtype, "keys")
    room[: keys.numel()].copy_(keys)
    if not keys.is_cuda:
        return by_bisection(room, team, lengths, first, end)
    kernels, sizes = merging(), {"dtype": keys.dtype, "device": keys.device}
    runs, block = torch.empty(end - first, **sizes), torch.empty(end - first, **sizes)
    cuts = torch.empty((2, world), dtype=torch.int64, device=keys.device)
    kernels.find_cuts[1, min(THREADS, 256)](team.px, room, cuts, lengths, first, end)
    blocks = min(max(-(-(end - first) // THREADS), 1), BLOCKS)
    kernels.pull_runs[blocks, THREADS](team.px, room, cuts, runs)
    kernels.merge_runs[blocks, THREADS](cuts, runs, block, world)
    return block


def by_counting(keys: torch.Tensor, team: Any, group: dist.ProcessGroup | None, first: int, end: int) -> torch.Tensor:
    """Returns places `first` to `end` of all 16-bit keys in order, computed from each key's count on all ranks."""
    if not keys.is_cuda:
        bits = keys.view(torch.int16).int()
        counts = torch.bincount(torch.where(bits < 0, -1 - bits, bits + KINDS // 2), minlength=KINDS)
        dist.all_reduce(counts, group=group)
        until = counts.cumsum(0).clamp_(first, end)
        kinds = torch.arange(KINDS)
        kinds = torch.where(kinds < KINDS // 2, -1 - kinds, kinds - KINDS // 2).to(torch.int16)
        return kinds.repeat_interleave(until.diff(prepend=until.new_tensor([first]))).view(keys.dtype)
    kernels, block = counting(), keys.new_empty(end - first)
    counts = torch.zeros(KINDS, dtype=torch.int32, device=keys.device)
    before = torch.empty(KINDS + 1, dtype=torch.int32, device=keys.device)
    everybody = team.out((team.world, KINDS), torch.int32, "counts", ring=2)
    done = team.empty(1, torch.int32, "done")  # zero at first, and after every launch
    if keys.numel():
        portions = min(-(-keys.numel() // PORTION), BLOCKS // 4 or 1)
        kernels.count_keys[4 * portions, THREADS](keys.data_ptr(), counts.data_ptr(), keys.numel())
    tables = counts.data_ptr(), everybody.data_ptr(), before.data_ptr(), done.data_ptr()
    kernels.add_counts[min(BLOCKS, 32), THREADS](team.px, *tables)
    if end > first:
        blocks = min(-(-(end - first) // (8 * THREADS)), BLOCKS)
        kernels.write_block[blocks, THREADS](before.data_ptr(), block.data_ptr(), first, end - first)
    return block


def by_bisection(room: torch.Tensor, team: Any, lengths: list[int], first: int, end: int) -> torch.Tensor:
    """Returns a CPU rank's block, sorted: the keys between the cuts in the peers' sorted float32 lists in `room`."""
    team.barrier()
    lists = [peer[:length] for peer, length in zip(team.peers(room), lengths, strict=True)]
    orders = [(keys + 0.0).view(torch.int32) for keys in lists]  # -0 counts as 0
    orders = [(bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() for bits in orders]
    places = torch.tensor([[first], [end]])
    bound = torch.full((2, 1), -(1 << 31))
    for shift in range(28, -4, -4):  # the largest key that has no more than `places` keys below it
        probes = bound + (torch.arange(1, PROBES) << shift)
        below = sum(torch.searchsorted(order, probes) for order in orders)
        bound += (below <= places).sum(dim=1, keepdim=True) << shift
    low = torch.cat([torch.searchsorted(order, bound) for order in orders], dim=1)
    high = torch.cat([torch.searchsorted(order, bound, right=True) for order in orders], dim=1)
    ties = high - low
    left = places - low.sum(dim=1, keepdim=True) - (ties.cumsum(dim=1) - ties)
    begins, stops = (low + torch.minimum(left.clamp(min=0), ties)).tolist()
    return torch.cat([keys[a:b] for keys, a, b in zip(lists, begins, stops, strict=True)]).sort().values
