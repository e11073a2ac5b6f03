"""Clips gradients to a global norm: one launch for all sums and their exchange, one for all gradients.

    from sandbox.kit.blocks.clipping import clip

    norm = clip(gradients, max_norm=1.0, norm_type=2.0, groups=[group])

The factor min(1, max_norm / norm) stays on the GPU.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm, tables

SOURCE = r"""
// Tensor t of the list (few, many): its address is number 2t, its length number 2t + 1; from tensor `dense` on they are experts'.
static __device__ float power(float value, float p) {
    return p == 2 ? value * value : p == 1 ? fabsf(value) : powf(fabsf(value), p);
}
// partial: [2][blocks], done: a counter, left at 0, boxes: px_swap's. The last block adds up the blocks' sums, in the same order
// in every call, then the ranks'. out: norm, and the factors of the dense and of the experts' gradients, which are divided by
// `divisor` first.
template <class T> static __device__ void sum_powers(const Px& px, const PxNumbers& few, const i64* many, float* partial,
        u32* done, uint4* boxes, float* out, int tensors, int dense, float p, float divisor, float max_norm) {
    const int each = 16 / sizeof(T), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __shared__ float warps[2][32];
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x;
    float sums[2] = {0, 0};
    for (int t = 0; t < tensors; ++t) {
        const T* from = (const T*)px_number(few, many, 2 * t);
        const i64 n = px_number(few, many, 2 * t + 1);
        float sum = 0;
        for (i64 i = first; i * each < n; i += 4 * step) {
            uint4 part[4];
            #pragma unroll  // all loads are in flight before the first addition
            for (int k = 0; k < 4; ++k) part[k] = px_ld_part(from, each * (i + k * step), n);
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                float value[8];
                px_unpack<T>(part[k], value);
                #pragma unroll
                for (int e = 0; e < each; ++e) sum += power(value[e], p);
            }
        }
        sums[t >= dense] += sum;
    }
    #pragma unroll
    for (int family = 0; family < 2; ++family) {
        const float sum = px_warp_sum(sums[family]);
        if (lane == 0) warps[family][warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        float sum = 0;
        for (int w = 0; w < blockDim.x / 32; ++w) sum += warps[threadIdx.x][w];
        partial[threadIdx.x * gridDim.x + blockIdx.x] = sum;
    }
    if (!px_last_block(done, gridDim.x)) return;
    const u32 turn = px_turn(px, 0);
    if (warp == 0) {
        float own[2];
        #pragma unroll
        for (int family = 0; family < 2; ++family) {
            float sum = 0;
            for (int block = lane; block < gridDim.x; block += 32)
                sum += ((const volatile float*)partial)[family * gridDim.x + block];
            own[family] = px_warp_sum(sum);
        }
        const uint2 got = px_swap(px, boxes, make_uint2(__float_as_uint(own[0]), __float_as_uint(own[1])), turn);
        float total[2] = {0, 0};
        for (int rank = 0; rank < px.world; ++rank) {  // the same bits on all ranks
            total[0] += __uint_as_float(__shfl_sync(0xffffffffu, got.x, rank));
            total[1] += __uint_as_float(__shfl_sync(0xffffffffu, got.y, rank));
        }
        if (lane == 0) {
            const float all = total[0] + total[1] / power(divisor, p);
            const float norm = p == 2 ? sqrtf(all) : p == 1 ? all : powf(all, 1 / p);
            const float factor = norm > max_norm ? max_norm / norm : 1.0f;
            out[0] = norm;
            out[1] = factor;
            out[2] = factor / divisor;
        }
    }
    px_reach(px, 0, turn);
}
// From the end to the beginning: what was read last is in the cache. A family whose factor is 1 is left alone.
template <class T> static __device__ void scale(
        const PxNumbers& few, const i64* many, const float* factors, int tensors, int dense) {
    const int each = 16 / sizeof(T);
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x;
    for (int t = tensors - 1; t >= 0; --t) {
        const float factor = factors[1 + (t >= dense)];
        if (factor == 1) continue;
        T* at = (T*)px_number(few, many, 2 * t);
        const i64 n = px_number(few, many, 2 * t + 1), words = (n + each - 1) / each;
        for (i64 i = first; i < words; i += 4 * step) {
            uint4 part[4];
            #pragma unroll
            for (int k = 0; k < 4; ++k)
                if (i + k * step < words) part[k] = px_ld_part(at, each * (words - 1 - i - k * step), n);
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                if (i + k * step >= words) break;
                float value[8];
                px_unpack<T>(part[k], value);
                #pragma unroll
                for (int e = 0; e < each; ++e) value[e] *= factor;
                px_st_part(at, each * (words - 1 - i - k * step), n, px_pack<T>(value));
            }
        }
    }
}
"""
ENTRIES = r"""
extern "C" __global__ void __launch_bounds__(512) sum_all(Px px, PxNumbers few, const i64* many, float* partial, u32* done,
        uint4* boxes, float* out, int tensors, int dense, float p, float divisor, float max_norm) {
    sum_powers<TYPE>(px, few, many, partial, done, boxes, out, tensors, dense, p, divisor, max_norm);
}
extern "C" __global__ void __launch_bounds__(512) scale_all(
        PxNumbers few, const i64* many, const float* factors, int tensors, int dense) {
    scale<TYPE>(few, many, factors, tensors, dense);
}
"""
BLOCKS, THREADS = 264, 512
TYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "float"}
Groups = Sequence[dist.ProcessGroup | None]


@functools.cache
def kernel_for(dtype: torch.dtype) -> tuple[Any, Any]:
    """(sum_all, scale_all) of a dtype; compiled when they are first asked for, so inside a first call."""
    module: Any = cuda.compile(SOURCE + ENTRIES.replace("TYPE", TYPES[dtype]))
    return module.sum_all, module.scale_all


def clip(
    dense: Sequence[torch.Tensor],
    max_norm: float,
    norm_type: float,
    groups: Groups,
    experts: Sequence[torch.Tensor] = (),
    divisor: float = 1.0,
    expert_groups: Groups | None = None,
) -> torch.Tensor:
    """Divides the experts' gradients by `divisor`, then scales all in place so that their common p-norm is at most max_norm.

    dense, experts: gradients of any shape and one dtype, any number of them. groups: the dense gradients' sums of powers are
    added up over each of these, one after the other (None is left out); expert_groups: the experts' (None: the same ones).
    Returns the norm before clipping, a 0-dim float32. Where no gradient has to change none is written.
    """
    over = [group for group in groups if group is not None]
    expert_over = over if expert_groups is None else [group for group in expert_groups if group is not None]
    gradients = [*dense, *experts]
    together = _ranks_of_one_exchange(over, expert_over)
    on_gpus = gradients[0].is_cuda if gradients else "nccl" in dist.get_backend_config()
    if together is None or not (on_gpus and _served(gradients)):
        return _by_library(dense, experts, divisor, max_norm, norm_type, over, expert_over, together)
    team = symm.connect().sub(together)
    device = gradients[0].device if gradients else torch.device("cuda", torch.cuda.current_device())
    dtype = gradients[0].dtype if gradients else torch.float32
    flat = [gradient.contiguous() for gradient in gradients]
    few, many = tables.numbers([n for g in flat for n in (g.data_ptr(), g.numel())], device)
    words = sum(-(-gradient.nbytes // 16) for gradient in flat)
    blocks = min(max(-(-words // (4 * THREADS)), 1), BLOCKS)
    boxes = team.empty((2, team.world, 4), torch.int32, "clipping: boxes")
    done = team.empty(1, torch.int32, "clipping: done")  # zero at first, and after every launch
    partial = torch.empty(2 * blocks, dtype=torch.float32, device=device)
    out = torch.empty(3, dtype=torch.float32, device=device)
    sum_all, scale_all = kernel_for(dtype)
    counts = len(flat), len(dense)
    sum_all[blocks, THREADS](
        team.px, few, many, partial, done, boxes, out, *counts, norm_type, divisor, max_norm
    )
    if flat:
        scale_all[blocks, THREADS](few, many, out, *counts)
    for gradient, scaled in zip(gradients, flat, strict=True):
        if scaled is not gradient:  # it was not contiguous
            gradient.copy_(scaled)
    return out[0]


def _served(gradients: Sequence[torch.Tensor]) -> bool:
    """Whether the kernels support the dtype, which is the same on all ranks."""
    return all(g.dtype is gradients[0].dtype and g.dtype in TYPES for g in gradients)


def _ranks_of_one_exchange(
    over: Sequence[dist.ProcessGroup], expert_over: Sequence[dist.ProcessGroup]
) -> list[int] | None:
    """The ranks of both sums, each of them once; None if there are no such ranks.

    Two groups that share this rank alone are rows and columns of a grid: reducing over both is reducing over all its ranks.
    """
    if len(over) > 1 or len(expert_over) > 2:
        return None
    ranks = dist.get_process_group_ranks(over[0]) if over else [dist.get_rank()]
    parts = [dist.get_process_group_ranks(group) for group in expert_over]
    if math.prod(map(len, parts)) != len(ranks) or not {rank for part in parts for rank in part} <= set(
        ranks
    ):
        return None
    if len(parts) == 2 and set(parts[0]) & set(parts[1]) != {dist.get_rank()}:
        return None
    return ranks


def _by_library(
    dense: Sequence[torch.Tensor],
    experts: Sequence[torch.Tensor],
    divisor: float,
    max_norm: float,
    norm_type: float,
    over: Sequence[dist.ProcessGroup],
    expert_over: Sequence[dist.ProcessGroup],
    together: list[int] | None,
) -> torch.Tensor:
    """The same for CPU ranks: one exchange of both sums if possible, and one pass to divide and scale."""
    gradients = [*dense, *experts]
    first = gradients[0] if gradients else torch.empty(0)
    wide = torch.promote_types(first.dtype, torch.float32)
    sums = torch.zeros(2, dtype=wide, device=first.device)
    for index, gradient in enumerate(gradients):
        norm = torch.linalg.vector_norm(gradient, norm_type, dtype=wide)
        sums[int(index >= len(dense))] += norm**norm_type
    if together is None:
        for group in over:
            dist.all_reduce(sums[0], group=group)
        for group in expert_over:
            dist.all_reduce(sums[1], group=group)
    elif over:
        dist.all_reduce(sums, group=over[0])
    total = torch.pow(sums[0] + sums[1] / divisor**norm_type, 1 / norm_type)
    norm = float(total)
    factor = max_norm / norm if norm > max_norm else 1.0
    for family, scale in ((dense, factor), (experts, factor / divisor)):
        if scale != 1:
            for gradient in family:
                gradient.mul_(scale)
    return total
