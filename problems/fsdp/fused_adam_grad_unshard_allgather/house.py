"""House kernel: sharded Adam; each new weight is stored at every rank from the registers in which it was computed."""

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

kernel_for = cuda.lazy(r"""
// Computes Adam's step t of this rank's weights, and stores them at all ranks. gradient, weight, mean, square: [n], this rank's
// shards; y: [W][n], symmetric. rest1 = 1 - beta1, rest2 = 1 - beta2, step_size = lr / (1 - beta1^t), root_scale = 1 / sqrt(1 -
// beta2^t).
extern "C" __global__ void __launch_bounds__(512) adam(Px px, const TYPE* gradient, const TYPE* weight, const TYPE* mean,
        const TYPE* square, TYPE* y, i64 n, float beta1, float rest1, float beta2, float rest2, float step_size, float root_scale,
        float eps) {
    const u32 turn = px_turn(px, blockIdx.x);
    const int each = 16 / sizeof(TYPE);
    const i64 step = gridDim.x * blockDim.x;
    for (i64 i = blockIdx.x * blockDim.x + threadIdx.x; i * each < n; i += 2 * step) {
        uint4 part[2][4];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 2; ++k) {
            const i64 at = each * (i + k * step);
            part[k][0] = px_ld_part(gradient, at, n);
            part[k][1] = px_ld_part(weight, at, n);
            part[k][2] = px_ld_part(mean, at, n);
            part[k][3] = px_ld_part(square, at, n);
        }
        #pragma unroll
        for (int k = 0; k < 2; ++k) {
            float g[8], w[8], m[8], v[8];
            px_unpack<TYPE>(part[k][0], g);
            px_unpack<TYPE>(part[k][1], w);
            px_unpack<TYPE>(part[k][2], m);
            px_unpack<TYPE>(part[k][3], v);
            #pragma unroll
            for (int e = 0; e < each; ++e) {
                const float new_mean = beta1 * m[e] + rest1 * g[e], new_square = beta2 * v[e] + rest2 * g[e] * g[e];
                w[e] -= step_size * new_mean / (sqrtf(new_square) * root_scale + eps);
            }
            const uint4 updated = px_pack<TYPE>(w);
            for (int away = 0; away < px.world; ++away)
                px_st_part(px_at(px, (px.rank + away) % px.world, y) + px.rank * n, each * (i + k * step), n, updated);
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);  // all ranks' weights have arrived
}
""")
BLOCKS, THREADS = 128, 512

symm.reserve(4 << 30)  # two results of the largest sizes


def solution(
    grad_shard: torch.Tensor,
    master_shard: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
) -> torch.Tensor:
    """Four shards [p] of bfloat16 or float32 -> [W·p]: the updated weights of all ranks in rank order. step >= 1, p >= 1."""
    step_size, root_scale = lr / (1 - beta1**step), (1 - beta2**step) ** -0.5
    if not grad_shard.is_cuda:
        mean = beta1 * exp_avg.float() + (1 - beta1) * grad_shard.float()
        square = beta2 * exp_avg_sq.float() + (1 - beta2) * grad_shard.float().square()
        updated = master_shard.float() - step_size * mean / (square.sqrt() * root_scale + eps)
        gathered = grad_shard.new_empty(dist.get_world_size() * updated.numel())
        dist.all_gather_into_tensor(gathered, updated.to(grad_shard.dtype))
        return gathered
    p = grad_shard.numel()
    # Two results are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the result of
    # call e before that barrier.
    result = symm.out(symm.world * p, grad_shard.dtype, "weights")
    words = -(-p * grad_shard.element_size() // 16)
    kernel = kernel_for(grad_shard.dtype).adam[min(-(-words // THREADS), BLOCKS), THREADS]
    shards = (grad_shard.contiguous(), master_shard.contiguous(), exp_avg.contiguous(), exp_avg_sq.contiguous())
    betas = (beta1, 1 - beta1, beta2, 1 - beta2)
    kernel(symm.px, *shards, result, p, *betas, step_size, root_scale, eps)
    return result
