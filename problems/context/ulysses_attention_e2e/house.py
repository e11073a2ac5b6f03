"""House kernel: Ulysses block; tokens do not attend to each other, so heads mix in registers, without an exchange."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from sandbox.kit import cuda
from sandbox.kit.recorded import recorded

kernel_for = cuda.lazy(r"""
// Attention over the heads of a token: a head attends to the `block` heads of its group, with `causal` up to itself. qkv:
// [tokens][3][heads][dim]; mixed: [tokens][heads][dim]. LANES lanes compute one head of one token, with a running maximum and
// sum, so that scores stay in registers. A lane has the words of 16 bytes lane, lane + LANES, ... of the head, WORDS of them.
#define KEYS 4
static __device__ void load(const TYPE* head, int lane, int dim, uint4* part) {
    #pragma unroll
    for (int w = 0; w < WORDS; ++w) part[w] = px_ld_part(head, (lane + w * LANES) * (16 / (int)sizeof(TYPE)), dim);
}
static __device__ void unpack(const uint4* part, float* value) {
    #pragma unroll
    for (int w = 0; w < WORDS; ++w) px_unpack<TYPE>(part[w], value + w * (16 / sizeof(TYPE)));
}
extern "C" __global__ void __launch_bounds__(256) mix(const TYPE* qkv, TYPE* mixed, i64 tokens, int heads, int dim, int block,
        float scale, int causal) {
    const int each = 16 / sizeof(TYPE), held = WORDS * (16 / sizeof(TYPE)), lane = threadIdx.x % LANES;
    const i64 all = tokens * heads, step = (i64)gridDim.x * blockDim.x / LANES;
    const i64 begin = ((i64)blockIdx.x * blockDim.x + threadIdx.x / 32 * 32) / LANES;  // the same in all lanes of a warp
    for (i64 base = begin; base < all; base += step) {
        const i64 item = min(base + threadIdx.x % 32 / LANES, all - 1);
        const int head = (u32)item % heads, first = head / block * block;
        const TYPE* token = qkv + (i64)((u32)item / heads) * 3 * heads * dim;
        float q[held], total[held], top = -1e38f, weights = 0;
        uint4 own[WORDS], key[KEYS][WORDS], value[KEYS][WORDS];
        load(token + head * dim, lane, dim, own);
        for (int begin = first; begin < first + block; begin += KEYS) {
            #pragma unroll  // all loads are in flight before the first product
            for (int k = 0; k < KEYS; ++k) {
                const int other = min(begin + k, first + block - 1);
                load(token + (heads + other) * dim, lane, dim, key[k]);
                load(token + (2 * heads + other) * dim, lane, dim, value[k]);
            }
            if (begin == first) {
                unpack(own, q);
                #pragma unroll
                for (int e = 0; e < held; ++e) q[e] *= scale, total[e] = 0;
            }
            #pragma unroll
            for (int k = 0; k < KEYS; ++k) {
                float one[held], product = 0;
                unpack(key[k], one);
                #pragma unroll
                for (int e = 0; e < held; ++e) product += q[e] * one[e];
                #pragma unroll
                for (int away = LANES / 2; away > 0; away /= 2) product += __shfl_xor_sync(0xffffffffu, product, away);
                if (begin + k >= first + block || (causal && begin + k > head)) continue;
                const float higher = fmaxf(top, product), kept = expf(top - higher), added = expf(product - higher);
                weights = weights * kept + added;
                unpack(value[k], one);
                #pragma unroll
                for (int e = 0; e < held; ++e) total[e] = total[e] * kept + added * one[e];
                top = higher;
            }
        }
        const float inverse = 1 / weights;
        #pragma unroll
        for (int e = 0; e < held; ++e) total[e] *= inverse;
        #pragma unroll
        for (int w = 0; w < WORDS; ++w)
            px_st_part(mixed + item * dim, (lane + w * LANES) * each, dim, px_pack<TYPE>(total + w * each));
    }
}
""")
BLOCKS, THREADS, LARGEST_HEAD = 132 * 8, 256, 256


def solution(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    num_heads: int = 8,
    causal: bool = False,
) -> torch.Tensor:
    """hidden_states [B, S, H], w_qkv [3·A·d, H] for A = num_heads, w_o [H, A·d]; W divides A.

    Returns [B, S, H]. Attention runs over the A/W heads of one block and one token, not over positions; causal hides later
    heads of the block. Heads of more than 256 elements are mixed by torch on GPUs, too.
    """
    world = dist.get_world_size(group)
    block, dim = num_heads // world, w_qkv.shape[0] // (3 * num_heads)
    causal = causal and world * hidden_states.shape[1] > 1
    if hidden_states.is_cuda and dim <= LARGEST_HEAD:
        output = torch.empty_like(hidden_states, memory_format=torch.contiguous_format)
        on_gpus(hidden_states, w_qkv, w_o, output, num_heads, block, causal)
        return output
    qkv = F.linear(hidden_states, w_qkv)
    q, k, v = qkv.unflatten(-1, (3, world, block, dim)).unbind(2)
    scores = (q @ k.transpose(-1, -2)) * dim**-0.5
    if causal:
        later = torch.ones(block, block, dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return F.linear((scores.softmax(dim=-1) @ v).flatten(2), w_o)


@recorded
def on_gpus(
    x: torch.Tensor, w_qkv: torch.Tensor, w_o: torch.Tensor, output: torch.Tensor, heads: int, block: int, causal: bool
) -> None:
    """Writes the output. block: heads that are mixed with one another."""
    qkv = F.linear(x, w_qkv).flatten(0, 1)
    tokens, dim = qkv.shape[0], qkv.shape[1] // (3 * heads)
    mixed = qkv.new_empty((tokens, heads * dim))
    words = -(-dim * qkv.element_size() // 16)
    lanes = min(1 << (words - 1).bit_length(), 32)
    kernels = kernel_for(qkv.dtype, LANES=lanes, WORDS=-(-words // lanes))
    blocks = min(max(-(-tokens * heads * lanes // THREADS), 1), BLOCKS)
    kernels.mix[blocks, THREADS](qkv, mixed, tokens, heads, dim, block, dim**-0.5, int(causal))
    torch.mm(mixed, w_o.t(), out=output.flatten(0, 1))
