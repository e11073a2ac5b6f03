"""House kernel: load-balancing loss; one pass keeps all sums in registers, the last block exchanges the losses."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm, tables

kernel_for = cuda.lazy(r"""
// The largest over the lanes that share a row.
static __device__ int largest(int value) {
    if (LANES == 32) return __reduce_max_sync(0xffffffffu, value);
    #pragma unroll
    for (int away = LANES / 2; away > 0; away /= 2) value = max(value, __shfl_xor_sync(0xffffffffu, value, away));
    return value;
}
// Sorts N numbers, a power of two, in descending order.
template <int N> static __device__ void sort(int* key) {
    #pragma unroll
    for (int size = 2; size <= N; size *= 2)
        #pragma unroll
        for (int away = size / 2; away > 0; away /= 2)
            #pragma unroll
            for (int j = 0; j < N; ++j) {
                // The first round of a size compares mirrored places, so that all comparisons have one direction.
                const int other = away == size / 2 ? j ^ (size - 1) : j ^ away;
                if (other <= j) continue;
                const int low = min(key[j], key[other]);
                key[j] = max(key[j], key[other]);
                key[other] = low;
            }
}
// Computes the mean of the ranks' losses. A layer has `rows` rows of `experts` logits; number l of the list (few, many) is the
// address of layer l. mask: [rows], 0 for rows that do not count; without a mask all count. LANES lanes share a row and have
// WORDS words of 16 bytes each. A lane has the same experts in every row, so it keeps their sums and hits in registers. partial:
// [blocks][2][experts], hits as integers, then sums of probabilities. done: a counter, 0 before and after. boxes: as in px_swap.
extern "C" __global__ void __launch_bounds__(256) balance_loads(Px px, PxNumbers few, const i64* many, const i64* mask,
        u32* partial, u32* done, uint4* boxes, float* out, i64 layers, i64 rows, int experts, int top_k) {
    const int each = 16 / sizeof(TYPE), held = WORDS * (16 / sizeof(TYPE)), lane = threadIdx.x % LANES, warp = threadIdx.x / 32;
    float sums[held];
    u32 hits[held];
    #pragma unroll
    for (int j = 0; j < held; ++j) sums[j] = hits[j] = 0;
    const i64 step = (i64)gridDim.x * blockDim.x / LANES;
    const i64 first = ((i64)blockIdx.x * blockDim.x + threadIdx.x / 32 * 32) / LANES;  // the same in all lanes of a warp
    i64 i = first + threadIdx.x % 32 / LANES;  // the row of the layer
    int layer = 0;
    for (i64 base = first; base < layers * rows; base += step, i += step) {
        for (; i >= rows; i -= rows) ++layer;
        // The logits of masked rows are loaded, too: one wait for the memory instead of two.
        const TYPE* row = layer < layers ? (const TYPE*)px_number(few, many, layer) + i * experts : 0;
        uint4 part[WORDS];
        #pragma unroll
        for (int w = 0; w < WORDS; ++w)
            part[w] = row ? px_ld_part(row, (w * LANES + lane) * each, experts) : make_uint4(0, 0, 0, 0);
        const bool counts = row && (!mask || mask[i]);
        if (!__any_sync(0xffffffffu, counts)) continue;
        float value[held], peak = -px_infinity(), total = 0;
        int key[held];
        #pragma unroll
        for (int w = 0; w < WORDS; ++w) {
            const int at = (w * LANES + lane) * each;
            px_unpack<TYPE>(part[w], value + w * each);
            #pragma unroll
            for (int e = 0; e < each; ++e) {
                if (at + e >= experts) value[w * each + e] = -px_infinity();
                peak = fmaxf(peak, value[w * each + e]);
            }
        }
        #pragma unroll
        for (int away = LANES / 2; away > 0; away /= 2) peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, away));
        #pragma unroll
        for (int j = 0; j < held; ++j) {
            // An integer that sorts like the logit. The lowest bits are the place in the lane; of float32 they drop a millionth.
            const int bits = __float_as_uint(value[j]);
            key[j] = (bits ^ (bits >> 31 & 0x7fffffff)) & -held | (held - 1 - j);
            total += value[j] = sizeof(TYPE) == 4 ? expf(value[j] - peak) : px_exp(value[j] - peak);
        }
        #pragma unroll
        for (int away = LANES / 2; away > 0; away /= 2) total += __shfl_xor_sync(0xffffffffu, total, away);
        const float inverse = 1 / total;
        #pragma unroll
        for (int j = 0; j < held; ++j)
            if (counts) sums[j] += to_float(from_float<TYPE>(value[j] * inverse));
        sort<held>(key);
        u32 chosen = 0;  // bit j: this lane's number j is among the largest
        for (int k = 0; k < top_k; ++k) {
            const u32 leaders = __ballot_sync(0xffffffffu, key[0] == largest(key[0])) >> threadIdx.x % 32 / LANES * LANES;
            const bool mine = (leaders & ((2u << lane) - 1)) == 1u << lane;  // the first lane of the row that has it
            chosen |= mine ? 1u << (held - 1 - (key[0] & held - 1)) : 0;
            #pragma unroll
            for (int j = 0; j < held; ++j) key[j] = mine ? j + 1 < held ? key[j + 1] : 0x80000000 : key[j];
        }
        #pragma unroll
        for (int j = 0; j < held; ++j) hits[j] += counts ? chosen >> j & 1 : 0;
    }
    __shared__ float block_sums[1024];
    __shared__ u32 block_hits[1024];
    for (int e = threadIdx.x; e < experts; e += blockDim.x) block_sums[e] = block_hits[e] = 0;
    #pragma unroll
    for (int j = 0; j < held; ++j)
        for (int away = LANES; away < 32; away *= 2) {  // over the rows of a warp
            sums[j] += __shfl_xor_sync(0xffffffffu, sums[j], away);
            hits[j] += __shfl_xor_sync(0xffffffffu, hits[j], away);
        }
    for (int turn = 0; turn < blockDim.x / 32; ++turn) {  // one warp after another: the same order in every call
        __syncthreads();
        #pragma unroll
        for (int j = 0; j < held; ++j) {
            const int e = (j / each * LANES + lane) * each + j % each;
            if (warp != turn || threadIdx.x % 32 >= LANES || e >= experts) continue;
            block_sums[e] += sums[j];
            block_hits[e] += hits[j];
        }
    }
    __syncthreads();
    for (int e = threadIdx.x; e < experts; e += blockDim.x) {
        partial[(i64)blockIdx.x * 2 * experts + e] = block_hits[e];
        partial[((i64)blockIdx.x * 2 + 1) * experts + e] = __float_as_uint(block_sums[e]);
    }
    if (!px_last_block(done, gridDim.x)) return;
    __shared__ double products[256], counted[256];
    double product = 0, chosen = 0;
    for (int e = threadIdx.x; e < experts; e += blockDim.x) {
        double hit = 0, sum = 0;
        #pragma unroll 8
        for (int block = 0; block < gridDim.x; ++block) {
            hit += ((const volatile u32*)partial)[(i64)block * 2 * experts + e];
            sum += __uint_as_float(((const volatile u32*)partial)[((i64)block * 2 + 1) * experts + e]);
        }
        product += hit * sum;
        chosen += hit;
    }
    products[threadIdx.x] = product;
    counted[threadIdx.x] = chosen;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x >= half) continue;
        products[threadIdx.x] += products[threadIdx.x + half];
        counted[threadIdx.x] += counted[threadIdx.x + half];
    }
    __syncthreads();
    const u32 turn = px_turn(px, 0);
    if (warp == 0) {
        const double tokens = counted[0] / top_k;  // every row that counts has top_k hits
        const float loss = (float)(experts * (products[0] / tokens / tokens));
        const uint2 got = px_swap(px, boxes, make_uint2(__float_as_uint(loss), 0), turn);
        float total = 0;
        for (int rank = 0; rank < px.world; ++rank)  // the same bits on all ranks
            total += __uint_as_float(__shfl_sync(0xffffffffu, got.x, rank));
        if (threadIdx.x == 0) *out = total / px.world;
    }
    px_reach(px, 0, turn);
}
""")
BLOCKS, THREADS = 660, 256
LARGEST_ROW = 2048
"""Largest row of logits, in bytes, that a warp keeps in registers; larger rows take library calls."""


def by_library(layers: Sequence[torch.Tensor], experts: int, top_k: int, mask: torch.Tensor | None) -> torch.Tensor:
    """Computes the mean of the ranks' losses, layer by layer without concatenation; counts only the chosen experts."""
    keep = None if mask is None else mask.reshape(-1).bool()
    tokens = layers[0].shape[0] if keep is None else keep.sum()
    hits = torch.zeros(experts, dtype=torch.int64, device=layers[0].device)
    sums = torch.zeros(experts, dtype=torch.float32, device=layers[0].device)
    for layer in layers:
        probabilities = torch.softmax(layer if keep is None else layer[keep], dim=-1)
        chosen = torch.topk(probabilities, top_k, dim=-1, sorted=False).indices
        hits += torch.bincount(chosen.flatten(), minlength=experts)
        sums += probabilities.sum(dim=0, dtype=torch.float32)
    total = tokens * len(layers)
    loss = experts * ((hits / total) * (sums / total)).sum()
    dist.all_reduce(loss)
    return loss / dist.get_world_size()


def solution(
    gate_logits: torch.Tensor | Sequence[torch.Tensor],
    num_experts: int,
    top_k: int = 2,
    attention_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """gate_logits [M, E], or one such tensor per layer; attention_mask [B, T] of 0 and 1 with B·T = M, or None.

    Returns the mean over the ranks of E · Σ_e f[e]·q[e], 0-dim float32: f is the share of the rows that chose expert e, q its
    mean probability (rounded to the run dtype), both over the rows whose position is not masked.
    """
    given = [gate_logits] if isinstance(gate_logits, torch.Tensor) else gate_logits
    layers = [layer.contiguous() for layer in given]
    rows, experts = layers[0].shape
    if not layers[0].is_cuda or experts * layers[0].element_size() > LARGEST_ROW:
        return by_library(layers, experts, top_k, attention_mask)
    words = -(-experts * layers[0].element_size() // 16)
    lanes = min(1 << (words - 1).bit_length(), 32)
    kept = next(size for size in (1, 2, 4) if size * lanes >= words)
    kernel = kernel_for(layers[0].dtype, LANES=lanes, WORDS=kept).balance_loads
    blocks = min(max(-(-rows * len(layers) * lanes // THREADS), 1), BLOCKS)
    few, many = tables.numbers([layer.data_ptr() for layer in layers], layers[0].device)
    mask = 0 if attention_mask is None else attention_mask.contiguous()
    partial = torch.empty(blocks * 2 * experts, dtype=torch.int32, device=layers[0].device)
    out = torch.empty((), dtype=torch.float32, device=layers[0].device)
    boxes = symm.empty((2, symm.world, 4), torch.int32, "boxes")
    done = symm.empty(1, torch.int32, "done")  # zero at first, and after every launch
    kernel[blocks, THREADS](symm.px, few, many, mask, partial, done, boxes, out, len(layers), rows, experts, top_k)
    return out
