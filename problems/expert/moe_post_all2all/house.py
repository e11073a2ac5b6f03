"""House kernel: combine; the rank that holds several rows of a token adds them up, so that it sends one row per token.

Owners of tokens send to the holders which rows belong together, and their weights: eight bytes for each of the K
choices. A holder sends one sum for each token of a peer; the owner adds its own rows and the sums, in float32. Rows are
read once, in place: no regrouping, no returned rows in memory, no zero fill, no atomics. The link limits the speed.
"""

from itertools import accumulate

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm
from sandbox.kit.blocks import chunks
from sandbox.kit.blocks.rows import all_to_all_rows

SOURCE = (
    chunks.SOURCE
    + r"""
const u32 NOTHING = 0xffffffffu;
// All lanes of a warp call this: returns this lane's part of the number of true cells of the map from `first` to `end`.
static __device__ u32 count_cells(const uint8_t* map, i64 first, i64 end) {
    const int lane = threadIdx.x % 32;
    const i64 head = min(end, first + (i64)(-(u64)(map + first) & 15)), tail = head + (end - head) / 16 * 16;
    u32 found = 0;
    for (i64 i = first + lane; i < head; i += 32) found += map[i] != 0;
    for (i64 i = head + 16 * lane; i < tail; i += 16 * 32) {  // a true cell has one bit set
        const uint4 cells = px_ld16(map + i);
        found += __popc(cells.x) + __popc(cells.y) + __popc(cells.z) + __popc(cells.w);
    }
    for (i64 i = tail + lane; i < end; i += 32) found += map[i] != 0;
    return found;
}
// Tells the holders which rows each token of this rank needs, with what weight. map: [experts][tokens]; selected, weights,
// holders: [tokens][top_k]. A cell's row is the number of true cells before it; rank s holds the rows from first.at[s] on. asked:
// [W (askers)][tokens][top_k] at every holder, symmetric: the row's number among those that the holder has for the asker
// (NOTHING: it is not the holder), and the row's weight. holders: the row's holder, -1: none.
extern "C" __global__ void __launch_bounds__(256) ask(Px px, const uint8_t* map, const i64* selected, const TYPE* weights,
        uint2* asked, int* holders, i64 tokens, int experts, int top_k, PxNumbers first) {
    __shared__ u32 between[MOST_EXPERTS], row_of[MOST_EXPERTS], chosen[MOST_EXPERTS];
    const u32 turn = px_turn(px, blockIdx.x);
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (i64 begin = 32 * (i64)blockIdx.x; begin < tokens; begin += 32 * (i64)gridDim.x) {  // 32 tokens at a time
        for (int e = threadIdx.x / 32; e < experts; e += warps) {
            const i64 own = e * tokens + begin;
            const u32 found = (u32)px_warp_sum(count_cells(map, e ? own - tokens : 0, own));  // exact up to 2^24
            const u32 bits = __ballot_sync(0xffffffffu, begin + lane < tokens && map[own + lane]);
            if (lane == 0) between[e] = found, chosen[e] = bits;
        }
        __syncthreads();
        for (int e = threadIdx.x; e < experts; e += blockDim.x) {
            u32 row = 0;
            for (int i = 0; i <= e; ++i) row += between[i];
            row_of[e] = row;
        }
        __syncthreads();
        const int listed = (int)min(tokens - begin, (i64)32) * top_k;
        for (int i = threadIdx.x; i < listed; i += blockDim.x) {
            const i64 at = begin * top_k + i;
            const int e = (int)selected[at], token = i / top_k;
            const u32 row = row_of[e] + __popc(chosen[e] & ((1u << token) - 1));
            int holder = 0;
            while (holder < px.world - 1 && row >= first.at[holder + 1]) ++holder;
            if (!(chosen[e] >> token & 1)) holder = -1;
            holders[at] = holder;
            const u32 weight = __float_as_uint(to_float(weights[at]));
            for (int away = 0; away < px.world; ++away) {
                const int peer = (px.rank + away) % px.world;
                const u32 wanted = peer == holder ? row - (u32)first.at[peer] : NOTHING;
                px_at(px, peer, asked)[px.rank * tokens * top_k + at] = make_uint2(wanted, weight);
            }
        }
        __syncthreads();
    }
    px_turn_barrier(px, blockIdx.x, turn);  // all ranks have asked
}
// All lanes of a warp call this: stores the weighted sum of the lanes' rows (0: none) at `to`, in the order of the lanes.
template <class T> static __device__ void add_rows(const T* row, float weight, T* to, i64 width) {
    const int each = 16 / sizeof(T), lane = threadIdx.x % 32;
    const u32 named = __ballot_sync(0xffffffffu, row != 0);
    if (__ballot_sync(0xffffffffu, ((u64)row | (u64)to | width * sizeof(T)) & 15)) {  // rows are not aligned to 16 bytes
        for (i64 begin = 0; begin < width; begin += 32) {
            float sum = 0;
            for (int k = 0; k < 32; ++k) {
                if (!(named >> k & 1)) continue;
                const T* from = (const T*)__shfl_sync(0xffffffffu, (u64)row, k);
                const float factor = __shfl_sync(0xffffffffu, weight, k);
                if (begin + lane < width) sum += factor * to_float(from[begin + lane]);
            }
            if (begin + lane < width) to[begin + lane] = from_float<T>(sum);
        }
        return;
    }
    for (i64 begin = lane * each; begin - lane * each < width; begin += 4 * 32 * each) {
        float sum[4][each];
        #pragma unroll
        for (int j = 0; j < 4 * each; ++j) sum[j / each][j % each] = 0;
        for (int k = 0; k < 32; ++k) {
            if (!(named >> k & 1)) continue;
            const T* from = (const T*)__shfl_sync(0xffffffffu, (u64)row, k) + begin;
            const float factor = __shfl_sync(0xffffffffu, weight, k);
            uint4 part[4];
            #pragma unroll  // all loads are in flight before the first sum
            for (int j = 0; j < 4; ++j)
                if (begin + j * 32 * each < width) part[j] = px_ld16(from + j * 32 * each);
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                float value[each];
                px_unpack<T>(part[j], value);
                #pragma unroll
                for (int i = 0; i < each; ++i) sum[j][i] += factor * value[i];
            }
        }
        #pragma unroll
        for (int j = 0; j < 4; ++j)
            if (begin + j * 32 * each < width) px_st16(to + begin + j * 32 * each, px_pack<T>(sum[j]));
    }
}
// Returns row `wanted` of those that return to an asker; 0 for NOTHING. first: the arrival number of the asker's first row.
template <class T> static __device__ const T* held_row(const T* rows, const Chunks& lying, int experts, i64 width,
        i64 first, u32 wanted) {
    return wanted == NOTHING ? 0 : rows + place_of(lying, experts, (u32)first + wanted) * width;
}
// Sends each asker the sums for its tokens. rows: [..][width], expert by expert; first.at[d]: the first row that returns to rank
// d, in order of arrival. sums: [W (holders)][tokens][width] at the askers, symmetric.
extern "C" __global__ void __launch_bounds__(256) answer(Px px, const TYPE* rows, const i64* sizes, const uint2* asked,
        TYPE* sums, i64 tokens, i64 width, int experts, int top_k, PxNumbers first) {
    __shared__ Chunks lying;
    const u32 turn = px_turn(px, blockIdx.x);
    const int lane = threadIdx.x % 32, others = px.world - 1;
    read_chunks(lying, sizes, px.world, experts);
    const i64 step = (i64)gridDim.x * (blockDim.x / 32);
    for (i64 i = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < others * tokens; i += step) {
        const int asker = (int)(px.rank + 1 + i % others) % px.world;
        const i64 token = i / others;
        uint2 entry = make_uint2(NOTHING, 0);
        if (lane < top_k) entry = asked[(asker * tokens + token) * top_k + lane];
        const TYPE* row = held_row(rows, lying, experts, width, first.at[asker], entry.x);
        if (!__ballot_sync(0xffffffffu, row != 0)) continue;
        add_rows(row, __uint_as_float(entry.y), px_at(px, asker, sums) + (px.rank * tokens + token) * width, width);
    }
    px_turn_barrier(px, blockIdx.x, turn);  // all ranks' sums have arrived
}
// Writes each token's sum, one per warp: the first top_k lanes have this rank's own rows, the next W lanes the peers' sums.
extern "C" __global__ void __launch_bounds__(256) combine(Px px, const TYPE* rows, const i64* sizes, const uint2* asked,
        const int* holders, const TYPE* sums, TYPE* out, i64 tokens, i64 width, int experts, int top_k, PxNumbers first) {
    __shared__ Chunks lying;
    const int lane = threadIdx.x % 32;
    read_chunks(lying, sizes, px.world, experts);
    const i64 step = (i64)gridDim.x * (blockDim.x / 32);
    for (i64 token = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; token < tokens; token += step) {
        const int holder = lane < top_k ? holders[token * top_k + lane] : -1;
        uint2 entry = make_uint2(NOTHING, 0);
        if (holder == px.rank) entry = asked[(px.rank * tokens + token) * top_k + lane];
        const TYPE* row = held_row(rows, lying, experts, width, first.at[px.rank], entry.x);
        float weight = __uint_as_float(entry.y);
        for (int peer = 0; peer < px.world; ++peer) {
            const bool sends = __ballot_sync(0xffffffffu, holder == peer) && peer != px.rank;
            if (sends && lane == top_k + peer) row = sums + (peer * tokens + token) * width, weight = 1;
        }
        add_rows(row, weight, out + token * width, width);
    }
}
"""
)
kernel_for = cuda.lazy(SOURCE)
BLOCKS, THREADS = 528, 256
MOST_CHOICES = 24
"""Most choices of a token that a warp's lanes hold beside the sums of eight ranks; more take library calls."""

symm.reserve(2 << 30)


def solution(
    expert_outputs: torch.Tensor,
    routing_weights: torch.Tensor,
    selected_experts: torch.Tensor,
    num_experts: int,
    input_splits: list[int],
    output_splits: list[int],
    num_global_tokens_per_local_expert: torch.Tensor,
    routing_map: torch.Tensor,
    local_input_permutation_mapping: torch.Tensor,
    org_hidden_states_shape: torch.Size,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """expert_outputs [R_out, H] expert-major; routing_weights and selected_experts [T, K]; the dispatch's tables.

    The splits keep the names they had in the dispatch: this call sends output_splits and receives input_splits. Returns
    the weighted sum of each token's rows, of shape org_hidden_states_shape [T, H]; all ranks have the same T and K.
    """
    team = symm.team(group)
    rows, sizes = expert_outputs.contiguous(), num_global_tokens_per_local_expert.contiguous()
    (tokens, top_k), width = selected_experts.shape, rows.shape[1]
    out = rows.new_empty(org_hidden_states_shape)
    if not rows.is_cuda or num_experts > chunks.MOST_EXPERTS or top_k > MOST_CHOICES:
        by_source = torch.empty_like(rows)
        by_source[chunks.arrivals(sizes, rows.shape[0])] = rows
        returned = all_to_all_rows(by_source, output_splits, input_splits, team)
        weights = torch.zeros(tokens, num_experts, dtype=torch.float32, device=rows.device)
        weights.scatter_add_(1, selected_experts, routing_weights.float())
        weighted = returned * weights.t()[routing_map].unsqueeze(1)
        total = torch.zeros(org_hidden_states_shape, dtype=torch.float32, device=rows.device)
        return out.copy_(total.index_add_(0, local_input_permutation_mapping, weighted))
    if not out.numel():
        return out
    kernels = kernel_for(rows.dtype)
    choices = tokens * top_k
    # One buffer each is enough. A rank writes `asked` again after the barrier at the end of `answer`. It writes `sums`
    # again after the barrier at the end of `ask`, which follows the `combine` of the previous call.
    asked = team.room(2 * team.world * choices, torch.int32, "asked", ring=1)
    sums = team.room(team.world * tokens * width, rows.dtype, "sums", ring=1)
    holders = torch.empty(choices, dtype=torch.int32, device=rows.device)
    returning, leaving = [0, *accumulate(input_splits)], [0, *accumulate(output_splits)]
    chosen = routing_map.contiguous(), selected_experts.contiguous(), routing_weights.contiguous()
    numbers = tokens, width, num_experts, top_k
    launch = kernels.ask[min(-(-tokens // 32), BLOCKS), THREADS]
    launch(team.px, *chosen, asked, holders, tokens, num_experts, top_k, returning)
    blocks = min(-(-tokens // (THREADS // 32)), BLOCKS)
    if team.world > 1:
        kernels.answer[blocks, THREADS](team.px, rows, sizes, asked, sums, *numbers, leaving)
    kernels.combine[blocks, THREADS](team.px, rows, sizes, asked, holders, sums, out, *numbers, leaving)
    return out
