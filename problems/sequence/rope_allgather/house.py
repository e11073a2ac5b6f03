"""House kernel: rotary all-gather; a thread rotates a word of both halves of a head and stores it at all ranks."""

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

kernel_for = cuda.lazy(r"""
// Rotates this rank's q and k, and stores them at their places in every rank's result. q, k: [B][S][heads][2 half]; cosine, sine:
// [B][S][2 half]; all_q, all_k: [B][W S][heads][2 half], symmetric; positions: B S; length: S. A thread rotates one word of 16
// bytes of each half of a head at a time.
extern "C" __global__ void __launch_bounds__(512) rotate(Px px, const TYPE* q, const TYPE* k, const TYPE* cosine,
        const TYPE* sine, TYPE* all_q, TYPE* all_k, i64 positions, i64 length, int heads, int half) {
    const u32 turn = px_turn(px, blockIdx.x);
    const int each = 16 / sizeof(TYPE), words = (half + each - 1) / each;
    const i64 items = positions * words;
    for (i64 item = (i64)blockIdx.x * blockDim.x + threadIdx.x; item < items * 2 * heads; item += (i64)gridDim.x * blockDim.x) {
        // Neighbouring threads have neighbouring words, then the next head of q, then the heads of k, then the next position.
        const i64 position = item / (words * 2 * heads);
        const int rest = item % (words * 2 * heads), word = rest % words, head = rest / words % heads;
        const bool is_k = rest / words >= heads;
        const i64 table = position * 2 * half, own = (position * heads + head) * 2 * half;
        const TYPE* from = (is_k ? k : q) + own;
        const uint4 loaded[6] = {
            px_ld_part(from, word * each, half), px_ld_part(from + half, word * each, half),
            px_ld_part(cosine + table, word * each, half), px_ld_part(cosine + table + half, word * each, half),
            px_ld_part(sine + table, word * each, half), px_ld_part(sine + table + half, word * each, half)};
        float u1[8], u2[8], c1[8], c2[8], s1[8], s2[8];
        px_unpack<TYPE>(loaded[0], u1);
        px_unpack<TYPE>(loaded[1], u2);
        px_unpack<TYPE>(loaded[2], c1);
        px_unpack<TYPE>(loaded[3], c2);
        px_unpack<TYPE>(loaded[4], s1);
        px_unpack<TYPE>(loaded[5], s2);
        float first[8], second[8];
        #pragma unroll
        for (int e = 0; e < each; ++e) {
            first[e] = u1[e] * c1[e] - u2[e] * s1[e];
            second[e] = u2[e] * c2[e] + u1[e] * s2[e];
        }
        const uint4 low = px_pack<TYPE>(first), high = px_pack<TYPE>(second);
        const i64 batch = position / length, place = (batch * px.world + px.rank) * length + position % length;
        TYPE* result = (is_k ? all_k : all_q) + (place * heads + head) * 2 * half;
        for (int away = 0; away < px.world; ++away) {
            TYPE* there = px_at(px, (px.rank + away) % px.world, result);
            px_st_part(there, word * each, half, low);
            px_st_part(there + half, word * each, half, high);
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);  // all ranks' positions have arrived
}
""")
BLOCKS, THREADS = 128, 512

symm.reserve(4 << 30)  # two results of the largest sizes


def solution(
    q_local: torch.Tensor, k_local: torch.Tensor, cos_local: torch.Tensor, sin_local: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """q_local, k_local [B, S, h, d], cos_local, sin_local [B, S, d] -> q_global, k_global [B, W·S, h, d], on every rank.

    The sequence of the result is the ranks' shards in rank order. d is even; rotated in float32 and rounded once.
    """
    if not q_local.is_cuda:
        cos, sin = cos_local.unsqueeze(2).float(), sin_local.unsqueeze(2).float()
        return gathered(rotated(q_local, cos, sin)), gathered(rotated(k_local, cos, sin))
    batch, length, heads, dim = q_local.shape
    # Two results each are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the
    # result of call e before that barrier.
    shape = (batch, symm.world * length, heads, dim)
    all_q, all_k = symm.out(shape, q_local.dtype, "q"), symm.out(shape, q_local.dtype, "k")
    words = -(-dim // 2 * q_local.element_size() // 16)
    blocks = min(max(-(-batch * length * 2 * heads * words // THREADS), 1), BLOCKS)
    kernel = kernel_for(q_local.dtype).rotate[blocks, THREADS]
    arguments = (t.contiguous() for t in (q_local, k_local, cos_local, sin_local))
    kernel(symm.px, *arguments, all_q, all_k, batch * length, length, heads, dim // 2)
    return all_q, all_k


def rotated(u: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Returns u [B, S, h, d] rotated by tables [B, S, 1, d] of float32, in u's dtype."""
    first, second = u.float().chunk(2, dim=-1)
    return (u * cos + torch.cat((-second, first), dim=-1) * sin).to(u.dtype)


def gathered(shard: torch.Tensor) -> torch.Tensor:
    """[B, S, h, d] -> [B, W·S, h, d], shards in rank order."""
    shards = shard.new_empty((dist.get_world_size(), *shard.shape))
    dist.all_gather_into_tensor(shards, shard.contiguous())
    return shards.transpose(0, 1).flatten(1, 2)
