"""House kernel: output projection; tensor cores read the weights once, and runs of logits are stored at all ranks."""

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

kernel_for = cuda.lazy(r"""
// All lanes of a warp call this: multiplies a tile of 16 weight rows by all tokens, over the warp's part of the width. Of the
// tile's 16 x 8 sums, lane (g = lane / 4, q = lane % 4) has those of rows g and g + 8 with tokens 2q and 2q + 1, as px_mma
// returns them. upper, lower: the lane's rows g and g + 8. For 16-bit types: one px_mma may sum over any 16 elements of the
// width, if they are the same for both factors. So lane q loads a word of 8 elements of each factor, and uses four of them in
// each of two px_mma.
template <class T> static __device__ void multiply(float* sum, const T* tokens, const T* upper, const T* lower, bool has_upper,
        bool has_lower, bool has_token, i64 width, int part, int parts) {
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    const i64 step = parts * 32;
    for (i64 first = part * 32 + q * 8; first - q * 8 < width; first += 4 * step) {
        uint4 high[4], low[4], token[4];
        #pragma unroll  // all loads are in flight before the first product
        for (int k = 0; k < 4; ++k) {
            high[k] = px_ld_part(upper, first + k * step, has_upper ? width : 0);
            low[k] = px_ld_part(lower, first + k * step, has_lower ? width : 0);
        }
        #pragma unroll
        for (int k = 0; k < 4; ++k) token[k] = px_ld_part(tokens + g * width, first + k * step, has_token ? width : 0);
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            px_mma<T>(sum, high[k].x, low[k].x, high[k].y, low[k].y, token[k].x, token[k].y);
            px_mma<T>(sum, high[k].z, low[k].z, high[k].w, low[k].w, token[k].z, token[k].w);
        }
    }
}
// The same for float32, without tensor cores: the four lanes of a row add up its products with all tokens, and each keeps the
// sums of two tokens.
template <> __device__ void multiply<float>(float* sum, const float* tokens, const float* upper, const float* lower,
        bool has_upper, bool has_lower, bool has_token, i64 width, int part, int parts) {
    const int q = threadIdx.x % 4, count = __popc(__ballot_sync(0xffffffffu, has_token)) / 4;
    float total[2][8] = {};
    for (i64 first = part * 16 + q * 4; first - q * 4 < width; first += parts * 16) {
        float row[2][4], token[4];
        px_unpack<float>(px_ld_part(upper, first, has_upper ? width : 0), row[0]);
        px_unpack<float>(px_ld_part(lower, first, has_lower ? width : 0), row[1]);
        #pragma unroll
        for (int n = 0; n < 8; ++n) {
            if (n >= count) break;
            px_unpack<float>(px_ld_part(tokens + n * width, first, width), token);
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                total[0][n] += row[0][e] * token[e];
                total[1][n] += row[1][e] * token[e];
            }
        }
    }
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        float all = total[i / 8][i % 8];
        all += __shfl_xor_sync(0xffffffffu, all, 1);
        all += __shfl_xor_sync(0xffffffffu, all, 2);
        if (i % 8 / 2 == q) sum[i / 8 * 2 + i % 2] = all;
    }
}
// Computes the logits of this rank's columns and stores them at all ranks. tokens: [t][width], t <= 8; weight: [columns][width];
// bias: [columns]; logits: [t][W*columns], symmetric. A block works on TILES tiles of 16 weight rows at a time. 8 / TILES of its
// 8 warps share a tile, each with a part of the width.
extern "C" __global__ void __launch_bounds__(256) project_runs(Px px, const TYPE* tokens, const TYPE* weight, const TYPE* bias,
        TYPE* logits, int count, i64 columns, i64 width) {
    const u32 turn = px_turn(px, blockIdx.x);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, parts = 8 / TILES, run = 16 * TILES;
    __shared__ float sums[8][16][8];
    for (i64 first = (i64)blockIdx.x * run; first < columns; first += (i64)gridDim.x * run) {
        float sum[4] = {0, 0, 0, 0};
        const i64 upper = first + warp / parts * 16 + lane / 4, lower = upper + 8;
        multiply<TYPE>(sum, tokens, weight + upper * width, weight + lower * width, upper < columns, lower < columns,
            lane / 4 < count, width, warp % parts, parts);
        #pragma unroll
        for (int i = 0; i < 4; ++i) sums[warp][lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = sum[i];
        __syncthreads();
        for (int i = threadIdx.x; i < run * count; i += blockDim.x) {
            const int place = i % run, token = i / run;
            const i64 column = first + place;
            if (column >= columns) continue;
            float total = to_float(bias[column]);
            for (int part = 0; part < parts; ++part) total += sums[place / 16 * parts + part][place % 16][token];
            const TYPE rounded = from_float<TYPE>(total);
            for (int away = 0; away < px.world; ++away) {
                const int peer = (px.rank + away) % px.world;
                px_at(px, peer, logits)[(token * px.world + px.rank) * columns + column] = rounded;
            }
        }
        __syncthreads();
    }
    px_turn_barrier(px, blockIdx.x, turn);  // all ranks' logits have arrived
}
""")
BLOCKS, WARPS = 396, 8
"""Three blocks on each multiprocessor, as many as its registers hold."""
MOST_TOKENS = 8
"""Columns of a tensor core's product; more tokens are multiplied by the library."""
LONG = 64
"""Columns of a run if there are enough columns: 128 bytes of 16-bit logits in one piece. Otherwise 16."""


def solution(hidden_states: torch.Tensor, weight_shard: torch.Tensor, bias_shard: torch.Tensor) -> torch.Tensor:
    """hidden_states [t, H], weight_shard [v, H], bias_shard [v] -> logits [t, W·v], the same on every rank.

    Sums and bias are float32 in the kernel, rounded once. The kernel takes t <= 8; library calls take any t.
    """
    tokens, (columns, width) = hidden_states.shape[0], weight_shard.shape
    if not hidden_states.is_cuda or tokens > MOST_TOKENS:
        # The product is computed transposed, [v, t]: so the gathered rows are in order, and are transposed at the end.
        local = torch.addmm(bias_shard[:, None], weight_shard, hidden_states.t())
        gathered = local.new_empty(dist.get_world_size() * columns, tokens)
        dist.all_gather_into_tensor(gathered, local.contiguous())
        return gathered.t().contiguous()
    # Two results are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the result of
    # call e before that barrier. Sizes change from call to call, so results are slices of larger rooms.
    room = symm.room(tokens * symm.world * columns, hidden_states.dtype, "logits", ring=None)
    tiles = LONG // 16 if columns >= LONG * BLOCKS // 4 else 1
    runs = max(-(-columns // (16 * tiles)), 1)
    blocks = -(-runs // -(-runs // BLOCKS))  # about the same number of runs for each
    kernel = kernel_for(hidden_states.dtype, TILES=tiles).project_runs[blocks, 32 * WARPS]
    given = hidden_states.contiguous(), weight_shard.contiguous(), bias_shard.contiguous()
    kernel(symm.px, *given, room, tokens, columns, width)
    return room[: tokens * symm.world * columns].view(tokens, symm.world * columns)
