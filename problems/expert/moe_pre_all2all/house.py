"""House kernel: dispatch; a token is sent once to each rank that has experts for it, which copies it to all its places.

The routing map is sent as one bit per cell. Every rank gets the bits of all ranks, which give the number of rows before
each row, so the host counts nothing. A rank sends its tokens to buffers of the peers, and stores the rows of its own
experts; then it copies the tokens that have arrived to their places. The link limits the speed, then the writes of the
rows.
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
// Writes the routing map, and its bits at all ranks. mask: [experts][choices][tokens]; map: [experts][tokens], the sums over the
// choices. cells: [W (sources)][experts * groups + 1] at every rank, symmetric: a bit for each cell that is not zero, 32 tokens a
// word, made by one warp. The last word is the number of the source's first row for the receiver, first.at[d] for rank d.
extern "C" __global__ void __launch_bounds__(512) sum_choices(Px px, const float* mask, float* map, u32* cells,
        i64 tokens, int experts, int choices, PxNumbers first) {
    const int lane = threadIdx.x % 32;
    const i64 groups = (tokens + 31) / 32, words = experts * groups, step = (i64)gridDim.x * (blockDim.x / 32);
    u32* mine = cells + px.rank * (words + 1);
    for (i64 word = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; word < words; word += step) {
        const i64 expert = word / groups, token = word % groups * 32 + lane;
        float sum = 0;
        #pragma unroll 4
        for (int choice = 0; choice < choices; ++choice)
            if (token < tokens) sum += mask[(expert * choices + choice) * tokens + token];
        if (token < tokens) map[expert * tokens + token] = sum;
        const u32 bits = __ballot_sync(0xffffffffu, sum != 0);
        if (lane < px.world) px_at(px, lane, mine)[word] = bits;
    }
    if (blockIdx.x == 0 && threadIdx.x < px.world) px_at(px, threadIdx.x, mine)[words] = (u32)first.at[threadIdx.x];
}
// A group: the cells of 32 tokens of one source. For each expert: the bits, and the number of its first row among the source's
// rows. The whole block calls read_cells.
struct Cells { u32 between[MOST_EXPERTS], row[MOST_EXPERTS], bits[MOST_EXPERTS]; };
static __device__ void read_cells(Cells& group, const u32* cells, i64 number, i64 groups, int experts) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    __syncthreads();  // all threads have ended the previous group
    for (int e = threadIdx.x / 32; e < experts; e += warps) {
        const i64 own = e * groups + number;
        u32 found = 0;
        for (i64 word = (e ? own - groups : 0) + lane; word < own; word += 32) found += __popc(cells[word]);
        found = (u32)px_warp_sum(found);  // exact up to 2^24
        if (lane == 0) group.between[e] = found, group.bits[e] = cells[own];
    }
    __syncthreads();
    for (int e = threadIdx.x; e < experts; e += blockDim.x) {
        u32 row = 0;
        for (int i = 0; i <= e; ++i) row += group.between[i];
        group.row[e] = row;
    }
    __syncthreads();
}
// Returns whether the token has a row for this expert, and sets *row to its number among the source's rows.
static __device__ bool has_row(const Cells& group, int experts, int expert, int token, u32* row) {
    if (expert >= experts || !(group.bits[expert] >> token & 1)) return false;
    *row = group.row[expert] + __popc(group.bits[expert] & ((1u << token) - 1));
    return true;
}
// All lanes of a warp call this: copies a row to the places that the lanes pass as `to` (0: none).
template <class T> static __device__ void spread(const T* from, T* to, i64 width) {
    const int each = 16 / sizeof(T), lane = threadIdx.x % 32;
    const u32 named = __ballot_sync(0xffffffffu, to != 0);
    if (!named) return;
    for (i64 begin = 0; begin < width; begin += 4 * 32 * each) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first store
        for (int j = 0; j < 4; ++j) part[j] = px_ld_part(from, begin + (j * 32 + lane) * each, width);
        for (int k = 0; k < 32; ++k) {
            if (!(named >> k & 1)) continue;
            T* place = (T*)__shfl_sync(0xffffffffu, (u64)to, k);
            #pragma unroll
            for (int j = 0; j < 4; ++j) px_st_part(place, begin + (j * 32 + lane) * each, width, part[j]);
        }
    }
}
// All lanes of a warp call this: copies a source's token to all its rows on this rank. first, count: the source's rows for this
// rank; arrives: the number of rows that come from earlier sources.
template <class T> static __device__ void spread_token(const Cells& group, const Chunks& lying, const T* from, T* rows,
        int token, u32 first, u32 count, u32 arrives, i64 width, int experts) {
    for (int some = 0; some < experts; some += 32) {
        u32 row = 0;
        const bool is_here = has_row(group, experts, some + threadIdx.x % 32, token, &row) && row - first < count;
        spread(from, is_here ? rows + place_of(lying, experts, arrives + row - first) * width : (T*)0, width);
    }
}
// Sends each token once to every rank that needs it, and stores the rows of this rank's own experts. x: [tokens][width]; came:
// [W (sources)][tokens][width] at every rank, symmetric; rows: those of this rank's experts; permutation: the token of each row
// that this rank sends. sent.at[d], received.at[s]: the number of rows that go to ranks below d, or come from ranks below s.
extern "C" __global__ void __launch_bounds__(512) send_tokens(Px px, const TYPE* x, const u32* cells, const i64* sizes,
        TYPE* came, TYPE* rows, i64* permutation, i64 tokens, i64 width, int experts, PxNumbers sent, PxNumbers received) {
    __shared__ Cells group;
    __shared__ Chunks lying;
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 groups = (tokens + 31) / 32;
    const u32 first = (u32)sent.at[px.rank], count = (u32)sent.at[px.rank + 1] - first;
    const u32 arrives = (u32)received.at[px.rank], total = (u32)sent.at[px.world];
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    read_chunks(lying, sizes, px.world, experts);
    for (i64 number = blockIdx.x; number < groups; number += gridDim.x) {
        read_cells(group, cells + px.rank * (experts * groups + 1), number, groups, experts);
        const u32 end = group.row[experts - 1] + __popc(group.bits[experts - 1]);
        if (number == groups - 1 && end != total) __trap();  // the splits do not fit the mask
        for (int token = threadIdx.x / 32; token < 32 && 32 * number + token < tokens; token += warps) {
            const i64 at = 32 * number + token;
            bool needs = false;  // whether rank number `lane` needs the token
            for (int some = 0; some < experts; some += 32) {
                u32 row = 0;
                int owner = -1;
                if (has_row(group, experts, some + lane, token, &row) && row < total) {
                    permutation[row] = at;
                    for (owner = 0; row >= sent.at[owner + 1];) ++owner;
                }
                for (int peer = 0; peer < px.world; ++peer) {
                    const bool any = __ballot_sync(0xffffffffu, owner == peer);
                    if (lane == peer && any) needs = true;
                }
            }
            TYPE* there = 0;
            if (needs && lane != px.rank) there = px_at(px, lane, came) + (px.rank * tokens + at) * width;
            spread(x + at * width, there, width);
            spread_token(group, lying, x + at * width, rows, token, first, count, arrives, width, experts);
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);  // all ranks' tokens have arrived
}
// Copies the tokens that have come from the peers to their rows for this rank's experts.
extern "C" __global__ void __launch_bounds__(512) receive_tokens(Px px, const u32* cells, const i64* sizes, const TYPE* came,
        TYPE* rows, i64 tokens, i64 width, int experts, PxNumbers received) {
    __shared__ Cells group;
    __shared__ Chunks lying;
    const i64 groups = (tokens + 31) / 32, words = experts * groups + 1;
    read_chunks(lying, sizes, px.world, experts);
    for (i64 i = blockIdx.x; i < (px.world - 1) * groups; i += gridDim.x) {
        const int source = (int)(px.rank + 1 + i / groups) % px.world;
        const i64 number = i % groups;
        const u32 *theirs = cells + source * words, first = theirs[words - 1];
        const u32 arrives = (u32)received.at[source], count = (u32)received.at[source + 1] - arrives;
        read_cells(group, theirs, number, groups, experts);
        for (int token = threadIdx.x / 32; token < 32 && 32 * number + token < tokens; token += blockDim.x / 32) {
            const TYPE* from = came + (source * tokens + 32 * number + token) * width;
            spread_token(group, lying, from, rows, token, first, count, arrives, width, experts);
        }
    }
}
"""
)
kernel_for = cuda.lazy(SOURCE)
BLOCKS, THREADS = 264, 512

symm.reserve(3 << 30)  # two times the tokens of all ranks


def solution(
    hidden_states: torch.Tensor,
    expert_mask: torch.Tensor,
    num_experts: int,
    input_splits: list[int],
    output_splits: list[int],
    num_global_tokens_per_local_expert: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Size]:
    """hidden_states [.., H] (T tokens on each rank), expert_mask [E, K, T], lists of W ints, num_global_.. [W, E_l].

    Returns (rows for this rank's experts [R_out, H], expert-major; routing map [E, T] in the mask's dtype; for each row
    of the send buffer its token [R] int64; the shape [T, H]).

    Raises:
        RuntimeError: the mask and input_splits differ in the number of (expert, token) pairs. On GPUs the kernel checks
            this, so that the host does not wait: the error is CUDA's, raised at the next synchronisation.
    """
    team = symm.team(group)
    x, sizes = hidden_states.reshape(-1, hidden_states.shape[-1]).contiguous(), num_global_tokens_per_local_expert
    (tokens, width), arriving = x.shape, sum(output_splits)
    if not x.is_cuda or num_experts > chunks.MOST_EXPERTS or expert_mask.dtype != torch.float32 or not tokens:
        routing_map = expert_mask.sum(dim=1)
        permutation = routing_map.nonzero()[:, 1].contiguous()
        if permutation.numel() != sum(input_splits):
            raise RuntimeError(f"the mask has {permutation.numel()} rows to send, input_splits {sum(input_splits)}")
        arrived = all_to_all_rows(x, input_splits, output_splits, team, permutation)
        return arrived[chunks.arrivals(sizes, arriving)], routing_map, permutation, x.shape
    unit = cuda.unit_of(x)
    kernels = kernel_for(unit)
    mask, sizes = expert_mask.contiguous(), sizes.contiguous()
    groups, warps = -(-tokens // 32), THREADS // 32
    # Two buffers each are enough: a rank writes for call e+2 after the barrier of call e+1, and all ranks run the
    # `receive_tokens` of call e before that barrier.
    cells = team.room(team.world * (num_experts * groups + 1), torch.int32, "cells")
    came = team.room(team.world * tokens * width, x.dtype, "came")
    rows, routing_map = x.new_empty((arriving, width)), mask.new_empty((num_experts, tokens))
    permutation = torch.empty(sum(input_splits), dtype=torch.int64, device=x.device)
    sent, received = [0, *accumulate(input_splits)], [0, *accumulate(output_splits)]
    blocks = min(-(-num_experts * groups // warps), BLOCKS)
    launch = kernels.sum_choices[blocks, THREADS]
    launch(team.px, mask, routing_map, cells, tokens, num_experts, mask.shape[1], sent[:-1])
    words = tokens, width * x.element_size() // unit.itemsize, num_experts
    memory = came.data_ptr(), rows.data_ptr()
    launch = kernels.send_tokens[min(groups, BLOCKS), THREADS]
    launch(team.px, x.data_ptr(), cells, sizes, *memory, permutation, *words, sent, received)
    if team.world > 1:
        blocks = min((team.world - 1) * groups, BLOCKS)
        kernels.receive_tokens[blocks, THREADS](team.px, cells, sizes, *memory, *words, received)
    return rows, routing_map, permutation, x.shape
