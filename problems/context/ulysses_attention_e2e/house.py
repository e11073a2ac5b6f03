"""House kernel: Ulysses block; tokens do not attend to each other, so heads mix in registers, without an exchange."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from sandbox.kit import cuda
from sandbox.kit.recorded import recorded

kernel_for = cuda.lazy(r"""
// Attention over the heads of a token: a head attends to the `block` heads of its group, with `causal` up to itself. qkv:
// [tokens][3][heads][dim]; mixed: [tokens][heads][dim]. A warp computes one head of one token, with a running maximum and sum,
// so that scores stay in registers. A lane has elements lane, lane + 32, ... of the head, at most KEPT of them.
#define KEPT 8
extern "C" __global__ void __launch_bounds__(256) mix(const TYPE* qkv, TYPE* mixed, i64 tokens, int heads, int dim, int block,
        float scale, int causal) {
    const int lane = threadIdx.x % 32;
    const i64 warps = (i64)gridDim.x * (blockDim.x / 32), all = tokens * heads;
    for (i64 item = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; item < all; item += warps) {
        const int head = item % heads, first = head / block * block, last = causal ? head + 1 : first + block;
        const TYPE* token = qkv + item / heads * 3 * heads * dim;
        float q[KEPT], total[KEPT], top = -1e38f, weights = 0;
        #pragma unroll
        for (int e = 0; e < KEPT; ++e) {
            q[e] = lane + 32 * e < dim ? to_float(token[head * dim + lane + 32 * e]) * scale : 0;
            total[e] = 0;
        }
        for (int other = first; other < last; ++other) {
            const TYPE* k = token + (heads + other) * dim;
            const TYPE* v = token + (2 * heads + other) * dim;
            float product = 0, value[KEPT];
            #pragma unroll
            for (int e = 0; e < KEPT; ++e) {
                const bool inside = lane + 32 * e < dim;
                value[e] = inside ? to_float(v[lane + 32 * e]) : 0;
                product += inside ? q[e] * to_float(k[lane + 32 * e]) : 0;
            }
            const float score = px_warp_sum(product), higher = fmaxf(top, score);
            const float kept = expf(top - higher), added = expf(score - higher);
            weights = weights * kept + added;
            #pragma unroll
            for (int e = 0; e < KEPT; ++e) total[e] = total[e] * kept + added * value[e];
            top = higher;
        }
        #pragma unroll
        for (int e = 0; e < KEPT; ++e)
            if (lane + 32 * e < dim) mixed[item * dim + lane + 32 * e] = from_float<TYPE>(total[e] / weights);
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
    blocks = min(max(-(-tokens * heads // (THREADS // 32)), 1), BLOCKS)
    kernel_for(qkv.dtype).mix[blocks, THREADS](qkv, mixed, tokens, heads, dim, block, dim**-0.5, int(causal))
    torch.mm(mixed, w_o.t(), out=output.flatten(0, 1))
