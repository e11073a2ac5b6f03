"""The house's ring attention: one launch for short sequences; for long ones ranks exchange heads, so that each has all rows."""

import functools
from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.attention import attend, attend_together

SOURCE = r"""
// q, k, v, y: [batch][rows][heads][width]. box: [W (senders)][2 (k, v)] of the same, symmetric, one of two used in turn. Block b
// has the pairs of batch and head b, b + gridDim.x, ... on all ranks: it sends their keys to the ranks that see them, and reads
// what the same block of the others has sent. A warp has a query. A lane has elements lane, lane + 32, ... of a head. Scores
// never leave registers. There are a running maximum and a running sum, and four keys are under way at a time.
#define KEPT 8
#define KEYS 4
template <class T> static __device__ void send(const Px& px, const T* k, const T* v, T* box, i64 size, int rows, int heads,
        int width, int pair, int causal) {
    const int each = 16 / sizeof(T), words = (width + each - 1) / each;
    for (int i = threadIdx.x; i < rows * words; i += blockDim.x) {
        const i64 at = (((i64)(pair / heads) * rows + i / words) * heads + pair % heads) * width;
        const int first = i % words * each;
        const uint4 key = px_ld_part(k + at, first, width), value = px_ld_part(v + at, first, width);
        for (int peer = causal ? px.rank + 1 : 0; peer < px.world; ++peer) {
            if (peer == px.rank) continue;
            T* there = px_at(px, peer, box) + 2 * px.rank * size + at;
            px_st_part(there, first, width, key);
            px_st_part(there + size, first, width, value);
        }
    }
}
template <class T> static __device__ void attend(const Px& px, const T* q, const T* k, const T* v, T* y, T* box, int batch,
        int rows, int heads, int width, float scale, int causal) {
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 size = (i64)batch * rows * heads * width;
    const int lane = threadIdx.x % 32, pairs = batch * heads;
    for (int pair = blockIdx.x; pair < pairs; pair += gridDim.x)
        send(px, k, v, box, size, rows, heads, width, pair, causal);
    px_meet(px, blockIdx.x, turn);  // the others' keys and values are here
    for (int item = threadIdx.x / 32; item < (pairs - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x * rows;
            item += blockDim.x / 32) {
        const int pair = blockIdx.x + item / rows * gridDim.x, row = item % rows;
        const i64 head = ((i64)(pair / heads) * rows * heads + pair % heads) * width, step = (i64)heads * width;
        float query[KEPT], total[KEPT], top = -1e38f, weights = 0;
        #pragma unroll
        for (int e = 0; e < KEPT; ++e) {
            query[e] = lane + 32 * e < width ? to_float(q[head + row * step + lane + 32 * e]) * scale : 0;
            total[e] = 0;
        }
        for (int source = 0; source < (causal ? px.rank + 1 : px.world); ++source) {
            const T* keys = (source == px.rank ? k : box + 2 * source * size) + head;
            const T* values = (source == px.rank ? v : box + (2 * source + 1) * size) + head;
            const int seen = causal && source == px.rank ? row + 1 : rows;
            for (int first = 0; first < seen; first += KEYS) {
                float score[KEYS], higher = top;
                #pragma unroll
                for (int j = 0; j < KEYS; ++j) {
                    float product = 0;
                    #pragma unroll
                    for (int e = 0; e < KEPT; ++e)
                        if (first + j < seen && lane + 32 * e < width)
                            product += query[e] * to_float(keys[(first + j) * step + lane + 32 * e]);
                    score[j] = px_warp_sum(product);
                    if (first + j >= seen) score[j] = -3e38f;
                    higher = fmaxf(higher, score[j]);
                }
                const float kept = expf(top - higher);
                weights *= kept;
                #pragma unroll
                for (int e = 0; e < KEPT; ++e) total[e] *= kept;
                #pragma unroll
                for (int j = 0; j < KEYS; ++j) {
                    const float added = expf(score[j] - higher);
                    weights += added;
                    #pragma unroll
                    for (int e = 0; e < KEPT; ++e)
                        if (first + j < seen && lane + 32 * e < width)
                            total[e] += added * to_float(values[(first + j) * step + lane + 32 * e]);
                }
                top = higher;
            }
        }
        #pragma unroll
        for (int e = 0; e < KEPT; ++e)
            if (lane + 32 * e < width) y[head + row * step + lane + 32 * e] = from_float<T>(total[e] / weights);
    }
}
"""
ENTRY = r"""
extern "C" __global__ void __launch_bounds__(256) attend_to_all(Px px, const TYPE* q, const TYPE* k, const TYPE* v, TYPE* y,
        TYPE* box, int batch, int rows, int heads, int width, float scale, int causal) {
    attend(px, q, k, v, y, box, batch, rows, heads, width, scale, causal);
}
"""
TYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "float"}
BLOCKS, THREADS, LARGEST_HEAD = 128, 256, 256
SHORT = 256
"""Keys of all ranks up to which one launch does everything: its products are not made by tensor cores."""

symm.reserve(4 << 30)  # two buffers for each exchange, of the largest sizes


@functools.cache
def kernel_for(dtype: torch.dtype) -> Any:
    """Compiled when it is first asked for."""
    return cuda.compile(SOURCE + ENTRY.replace("TYPE", TYPES[dtype])).attend_to_all


@torch.no_grad()
def solution(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """q, k, v [B, S, H, d]: rows r·S .. r·S + S - 1 of the sequence -> the attention output of these rows, same shape.

    The softmax goes over the keys of all ranks, up to the query's own position when causal. The scale is d^-1/2 if None.

    By exchanging heads a rank sends (W - 1)/W of its queries, keys, values and outputs: 4·(W - 1)/W·n elements in two launches.
    A ring sends 2·(W - 1)·n in W - 1 steps. Under the mask every rank has the work of W/2 blocks, where the last rank of a ring
    has W - 1/2.
    """
    world, (batch, rows, heads, width) = dist.get_world_size(group), q.shape
    if q.is_cuda and world * rows <= SHORT and width <= LARGEST_HEAD:
        launch = kernel_for(q.dtype)[min(batch * heads, BLOCKS), THREADS]  # before the ranks meet for their buffers
        team = symm.team(group)
        box, result = team.out((world, 2, *q.shape), q.dtype, "keys", ring=2), q.new_empty(q.shape)
        scale = width**-0.5 if softmax_scale is None else softmax_scale
        given = [tensor.contiguous().data_ptr() for tensor in (q, k, v)]
        launch(team.px, *given, result.data_ptr(), box.data_ptr(), batch, rows, heads, width, scale, int(causal))
        return result
    if world == 1:
        return attend(q, k, v, softmax_scale, causal)
    return attend_together(torch.stack((q, k, v), dim=2), softmax_scale, causal, group)
