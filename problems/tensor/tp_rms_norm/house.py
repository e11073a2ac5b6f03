"""House kernel: tensor-parallel RMSNorm; a warp keeps a row in registers while ranks exchange its sums of squares."""

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

kernel_for = cuda.lazy(r"""
// A lane keeps KEPT words of a row in registers. With REREAD it reads the further words of a longer row again.
struct Row { uint4 word[KEPT]; float squares; };

// All lanes of a warp call this: loads a row, and sends its sum of squares to the peers.
static __device__ void publish(const Px& px, Row& held, const TYPE* x, u64* box, i64 rows, i64 width, i64 row,
        u32 turn) {
    const int each = 16 / sizeof(TYPE), lane = threadIdx.x % 32;
    float squares = 0;
    #pragma unroll  // all loads are in flight before the first product
    for (int k = 0; k < KEPT; ++k) held.word[k] = px_ld_part(x + row * width, (lane + 32ll * k) * each, width);
    #pragma unroll
    for (int k = 0; k < KEPT; ++k) {
        float value[8];
        px_unpack<TYPE>(held.word[k], value);
        #pragma unroll
        for (int e = 0; e < each; ++e) squares += value[e] * value[e];
    }
    if (REREAD)
        for (i64 first = (lane + 32ll * KEPT) * each; first < width; first += 32 * each) {
            float value[8];
            px_unpack<TYPE>(px_ld_part(x + row * width, first, width), value);
            #pragma unroll
            for (int e = 0; e < each; ++e) squares += value[e] * value[e];
        }
    held.squares = px_warp_sum(squares);
    if (lane < px.world && lane != px.rank)
        px_st_ll(px_at(px, lane, box) + px.rank * rows + row, __float_as_uint(held.squares), turn);
}
// All lanes of a warp call this: waits for the peers' sums of the row, then writes the normalised row.
static __device__ void finish(const Px& px, const Row& held, const TYPE* x, const TYPE* weight, TYPE* y, const u64* box,
        i64 rows, i64 width, float epsilon, i64 row, u32 turn) {
    const int each = 16 / sizeof(TYPE), lane = threadIdx.x % 32;
    float got = lane == px.rank ? held.squares : 0;
    if (lane < px.world && lane != px.rank) got = __uint_as_float(px_ld_ll(box + lane * rows + row, turn));
    float squares = 0;
    // in the order of the ranks
    for (int source = 0; source < px.world; ++source) squares += __shfl_sync(0xffffffffu, got, source);
    const float scale = rsqrtf(squares / ((float)width * px.world) + epsilon);
    #pragma unroll
    for (int k = 0; k < KEPT; ++k) {
        const i64 first = (lane + 32ll * k) * each;
        if (first >= width) break;
        float value[8], gain[8];
        px_unpack<TYPE>(held.word[k], value);
        px_unpack<TYPE>(px_ld_part(weight, first, width), gain);
        #pragma unroll
        for (int e = 0; e < each; ++e) value[e] *= scale * gain[e];
        px_st_part(y + row * width, first, width, px_pack<TYPE>(value));
    }
    if (REREAD)
        for (i64 first = (lane + 32ll * KEPT) * each; first < width; first += 32 * each) {
            float value[8], gain[8];
            px_unpack<TYPE>(px_ld_part(x + row * width, first, width), value);
            px_unpack<TYPE>(px_ld_part(weight, first, width), gain);
            #pragma unroll
            for (int e = 0; e < each; ++e) value[e] *= scale * gain[e];
            px_st_part(y + row * width, first, width, px_pack<TYPE>(value));
        }
}
// Normalises rows over the slices of all ranks. x, y: [rows][width]; boxes: [2 (turns)][W (senders)][rows] words of 8 bytes, a
// sum and a flag, symmetric. Warp w has rows w, w + number of warps, ..., the same rows on every rank. It sends the next row's
// sum before it waits for this row's sums, so that each sum travels while the previous row is normalised. Two turns are enough: a
// rank that sends launch t+2 has received all words of launch t+1, so all ranks have read those of launch t.
extern "C" __global__ void __launch_bounds__(256, 2) normalise_rows(Px px, const TYPE* x, const TYPE* weight, TYPE* y, u64* boxes,
        i64 rows, i64 width, float epsilon) {
    const u32 turn = px_turn(px, blockIdx.x);
    u64* box = boxes + (i64)(turn & 1) * px.world * rows;
    const i64 warps = (i64)gridDim.x * (blockDim.x / 32);
    i64 row = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    Row held, next;
    if (row < rows) publish(px, held, x, box, rows, width, row, turn);
    while (row < rows) {
        if (row + warps < rows) publish(px, next, x, box, rows, width, row + warps, turn);
        finish(px, held, x, weight, y, box, rows, width, epsilon, row, turn);
        held = next;
        row += warps;
    }
    px_reach(px, blockIdx.x, turn);
}
""")
BLOCKS, THREADS = 264, 256
"""Two blocks on each multiprocessor, of eight rows each."""
LANE_WORDS = 8
"""16-byte words that a lane keeps: rows of up to 4 KiB are read once; of longer rows the rest is read twice."""


def solution(local_hidden_states: torch.Tensor, local_weight: torch.Tensor, variance_epsilon: float) -> torch.Tensor:
    """local_hidden_states [..., N] (this rank's slice of the hidden dimension), local_weight [N] -> the same shape.

    Each token is divided by the root of its mean square over all W·N features, then multiplied by the weight.
    Arithmetic is float32; the result is rounded once.
    """
    width = local_hidden_states.shape[-1]
    if not local_hidden_states.is_cuda:
        x = local_hidden_states.float()
        squares = x.square().sum(dim=-1, keepdim=True)
        dist.all_reduce(squares)
        scale = torch.rsqrt(squares / (width * dist.get_world_size()) + variance_epsilon)
        return (x * scale * local_weight).to(local_hidden_states.dtype)
    x = local_hidden_states.contiguous()
    result = torch.empty_like(x)
    rows = x.numel() // max(width, 1)
    if rows == 0:
        return result
    boxes = symm.empty((2, symm.world, rows), torch.int64, "boxes")
    lane_words = -(-width * x.element_size() // 512)
    kept = next(size for size in (1, 2, 4, LANE_WORDS) if size >= min(lane_words, LANE_WORDS))
    kernel = kernel_for(x.dtype, KEPT=kept, REREAD=int(lane_words > kept)).normalise_rows
    launch = kernel[min(-(-rows // (THREADS // 32)), BLOCKS), THREADS]
    launch(symm.px, x, local_weight.contiguous(), result, boxes, rows, width, variance_epsilon)
    return result
