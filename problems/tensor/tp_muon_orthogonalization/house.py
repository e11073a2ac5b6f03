"""House kernel: Newton-Schulz steps; float16 products on tensor cores, X in float32, one exchange of sums per step."""

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm
from sandbox.kit.recorded import recorded

kernels = cuda.lazy(r"""
// Writes 1 / the Frobenius norm of all ranks' x to `inverse`. partial: [blocks]; done: a counter, 0 before and after; boxes: as
// in px_swap.
extern "C" __global__ void __launch_bounds__(256) find_norm(
        Px px, const bf16* x, i64 n, float* partial, u32* done, uint4* boxes, float* inverse) {
    __shared__ float sums[32];
    float squares = 0;
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x; 8 * first < n; first += 4 * step) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first product
        for (int i = 0; i < 4; ++i) part[i] = px_ld_part(x, 8 * (first + i * step), n);
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            float value[8];
            px_unpack<bf16>(part[i], value);
            #pragma unroll
            for (int e = 0; e < 8; ++e) squares += value[e] * value[e];
        }
    }
    squares = px_warp_sum(squares);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = squares;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0;
        for (int warp = 0; warp < blockDim.x / 32; ++warp) total += sums[warp];
        partial[blockIdx.x] = total;
    }
    if (!px_last_block(done, gridDim.x)) return;
    const u32 slot = 1000, turn = px_turn(px, slot);
    if (threadIdx.x < 32) {
        float own = 0;
        for (int block = threadIdx.x; block < gridDim.x; block += 32) own += ((const volatile float*)partial)[block];
        own = px_warp_sum(own);
        const uint2 got = px_swap(px, boxes, make_uint2(__float_as_uint(own), 0), turn);
        const float total = px_warp_sum(__uint_as_float(got.x));  // the same bits on all ranks
        if (threadIdx.x == 0) *inverse = 1 / fmaxf(sqrtf(total), 1e-7f);
    }
    px_reach(px, slot, turn);
}
// Stores 8 elements of X from `first` on: at the end to `result`, before that to `wide` in float32 and, times narrow_scale, to
// `narrow` as the float16 factor of the next products.
static __device__ void keep(float* value, i64 first, i64 n, float* wide, f16* narrow, float narrow_scale, bf16* result) {
    if (result) {
        px_st_part(result, first, n, px_pack<bf16>(value));
        return;
    }
    px_st_part(wide, first, n, px_pack<float>(value));
    px_st_part(wide, first + 4, n, px_pack<float>(value + 4));
    #pragma unroll
    for (int e = 0; e < 8; ++e) value[e] *= narrow_scale;
    px_st_part(narrow, first, n, px_pack<f16>(value));
}
// X = x * *inverse; stored as in `keep`.
extern "C" __global__ void __launch_bounds__(256) normalise(
        const bf16* x, i64 n, const float* inverse, float* wide, f16* narrow, float narrow_scale, bf16* result) {
    for (i64 first = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x); first < n; first += 8ll * gridDim.x * blockDim.x) {
        float value[8];
        px_unpack<bf16>(px_ld_part(x, first, n), value);
        #pragma unroll
        for (int e = 0; e < 8; ++e) value[e] *= *inverse;
        keep(value, first, n, wide, narrow, narrow_scale, result);
    }
}
// X = a * wide + scale * product; stored as in `keep`.
extern "C" __global__ void __launch_bounds__(256) update(const float* product, i64 n, float a, float scale, float* wide,
        f16* narrow, float narrow_scale, bf16* result) {
    for (i64 first = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x); first < n; first += 8ll * gridDim.x * blockDim.x) {
        float value[8], added[8];
        px_unpack<float>(px_ld_part(wide, first, n), value);
        px_unpack<float>(px_ld_part(wide, first + 4, n), value + 4);
        px_unpack<float>(px_ld_part(product, first, n), added);
        px_unpack<float>(px_ld_part(product, first + 4, n), added + 4);
        #pragma unroll
        for (int e = 0; e < 8; ++e) value[e] = a * value[e] + scale * added[e];
        keep(value, first, n, wide, narrow, narrow_scale, result);
    }
}
// Sums `own` over the ranks. own, total: `words` words of 16 bytes, symmetric. Each rank adds up 1/W of the words of all ranks,
// and stores the sums at all ranks. At the first px_turn_barrier all ranks have written `own`, and no rank reads `total` of the
// previous launch any more. At the second one `total` is complete, and `own` may be written again.
extern "C" __global__ void __launch_bounds__(512) add_up(Px px, const uint4* own, uint4* total, i64 words) {
    const u32 turn = px_turn(px, blockIdx.x), second = px_turn(px, gridDim.x + blockIdx.x);
    px_turn_barrier(px, blockIdx.x, turn);
    const i64 share = (words + px.world - 1) / px.world, end = min((px.rank + 1) * share, words);
    for (i64 i = px.rank * share + (i64)blockIdx.x * blockDim.x + threadIdx.x; i < end; i += (i64)gridDim.x * blockDim.x) {
        uint4 part[PX_MAX_WORLD];
        #pragma unroll  // all loads are in flight before the first addition
        for (int source = 0; source < PX_MAX_WORLD; ++source)
            if (source < px.world) part[source] = px_ld16(px_at(px, source, (uint4*)own) + i);
        PxSum<f16> sum;
        #pragma unroll
        for (int source = 0; source < PX_MAX_WORLD; ++source)
            if (source < px.world) sum.add(part[source]);
        const uint4 rounded = sum.rounded();
        for (int away = 0; away < px.world; ++away) px_st16(px_at(px, (px.rank + away) % px.world, total) + i, rounded);
    }
    px_turn_barrier(px, gridDim.x + blockIdx.x, second);
}
""")
X_SCALE, GRAM_SCALE, POLYNOMIAL_SCALE = 64.0, 4096.0, 1024.0
"""Powers of two that keep float16 factors in range: elements of X are 1e-5 to 1, eigenvalues of A up to 4, of b·A + g·A·A
up to 20. GRAM_SCALE is X_SCALE squared."""
BLOCKS, THREADS = 264, 256
SUM_BLOCKS = 128
COEFFICIENTS = {
    "simple": [(3.4445, -4.7750, 2.0315)],
    "quintic": [
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ],
    "polar_express": [
        (8.2051, -22.9019, 16.4607),
        (4.0664, -2.8612, 0.5184),
        (3.9096, -2.8234, 0.5250),
        (3.2856, -2.4647, 0.5074),
        (2.2779, -1.6447, 0.4162),
        (1.8726, -1.2307, 0.3585),
        (1.8564, -1.2132, 0.3568),
        (1.8750, -1.2500, 0.3750),
    ],
    "aol": [(4.0098, -7.0585, 2.4635), (3.4585, -5.5479, 2.5959), (2.7573, -3.2939, 1.4254), (2.7215, -3.0494, 1.3169)],
}

# Sums of float16 products stay float32 until they are complete: unscaled they are larger than float16 can hold.
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def solution(
    x: torch.Tensor,
    steps: int = 5,
    coefficient_type: str = "quintic",
    partition_dim: int = 1,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """x [m, c/W] (partition_dim 1) or [c/W, m] (0) -> the same shape and dtype.

    X, the shards joined along partition_dim (as m x c), is divided by its Frobenius norm; then each step makes it
    a X + (b A + g A A) X with A = X X^T, where (a, b, g) cycle through the coefficients. AssertionError for an unknown
    coefficient_type, an x that is not a matrix, another partition_dim, or a number of steps that does not fit.
    """
    assert x.dim() == 2, f"x must be a matrix, not of {x.dim()} dimensions"
    assert partition_dim in (0, 1), f"partition_dim must be 0 or 1, not {partition_dim}"
    assert coefficient_type in COEFFICIENTS, f"coefficient_type must be one of {', '.join(COEFFICIENTS)}"
    cycle = COEFFICIENTS[coefficient_type]
    assert steps % len(cycle) == 0, f"{steps} steps are not a multiple of {len(cycle)} coefficients"
    triples = cycle * (steps // len(cycle))
    team = symm.team(group)
    if x.numel() and x.is_cuda and x.dtype == torch.bfloat16:
        given = x.contiguous()
        result = torch.empty_like(given)
        write_orthogonal(given, result, triples, partition_dim, team)
        return result
    return in_torch(x, triples, partition_dim, team)


@recorded
def write_orthogonal(
    x: torch.Tensor,
    result: torch.Tensor,
    triples: list[tuple[float, float, float]],
    partition_dim: int,
    team: symm.Team,
) -> None:
    """Writes the result on GPUs. Keeps X in float32 from step to step; rounds factors to float16, with TF32's mantissa."""
    device, n, m = x.device, x.numel(), x.shape[1 - partition_dim]
    words = -(-m * m // 8)
    own = team.empty(words * 8, torch.float16, "own Gram matrix")
    total = team.empty(words * 8, torch.float16, "Gram matrix") if team.world > 1 else own
    boxes = team.empty((2, team.world, 4), torch.int32, "boxes")
    done = team.empty(1, torch.int32, "done")  # zero at first, and after every launch
    gram, sums = own[: m * m].view(m, m), total[: m * m].view(m, m)
    wide = torch.empty(x.shape, dtype=torch.float32, device=device)
    narrow = torch.empty(x.shape, dtype=torch.float16, device=device)
    norm = torch.empty(BLOCKS + 1, dtype=torch.float32, device=device)
    inverse = norm[BLOCKS:]
    polynomial = torch.empty_like(sums)
    blocks = min(-(-n // (8 * THREADS)), BLOCKS)
    kernel = kernels()
    kernel.find_norm[blocks, THREADS](team.px, x, n, norm, done, boxes.data_ptr(), inverse)
    last = result if not triples else 0
    kernel.normalise[blocks, THREADS](x, n, inverse, wide, narrow, X_SCALE, last)
    for step, (a, b, g) in enumerate(triples):
        left, right = (narrow, narrow.t()) if partition_dim else (narrow.t(), narrow)
        torch.mm(left, right, out=gram)
        if team.world > 1:
            sum_blocks = min(-(-words // (team.world * 2 * THREADS)), SUM_BLOCKS)
            kernel.add_up[sum_blocks, 2 * THREADS](team.px, own.data_ptr(), total.data_ptr(), words)
        # (b A + g A A) * POLYNOMIAL_SCALE
        beta, alpha = b * POLYNOMIAL_SCALE / GRAM_SCALE, g * POLYNOMIAL_SCALE / GRAM_SCALE**2
        torch.addmm(sums, sums, sums, beta=beta, alpha=alpha, out=polynomial)
        product = wide_product(polynomial, narrow) if partition_dim else wide_product(narrow, polynomial)
        last = result if step == len(triples) - 1 else 0
        scale = 1 / (POLYNOMIAL_SCALE * X_SCALE)
        kernel.update[blocks, THREADS](product, n, a, scale, wide, narrow, X_SCALE, last)


def wide_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns a @ b of float16 matrices in float32; torch lacks this on CPUs, where the factors are converted first."""
    if a.device.type == "cpu":
        return a.float() @ b.float()
    return torch.mm(a, b, out_dtype=torch.float32)


def in_torch(
    x: torch.Tensor, triples: list[tuple[float, float, float]], partition_dim: int, team: symm.Team
) -> torch.Tensor:
    """Computes on CPU ranks, or other dtypes, in float32 or wider; the norm is the root of the first Gram trace."""
    shard = x.to(torch.promote_types(x.dtype, torch.float32))
    if partition_dim == 0:
        shard = shard.t()
    for step, (a, b, g) in enumerate(triples or [(1.0, 0.0, 0.0)]):
        peers = team.peers(team.stage(shard @ shard.t()))
        team.barrier()
        gram = peers[0] + peers[1] if team.world > 1 else peers[0].clone()
        for peer in peers[2:]:
            gram += peer
        if step == 0:
            norm = gram.trace().sqrt().clamp(min=1e-7)
            shard, gram = shard / norm, gram / norm.square()
        update = torch.addmm(gram, gram, gram, beta=b, alpha=g)
        shard = torch.addmm(shard, update, shard, beta=a)
    if partition_dim == 0:
        shard = shard.t()
    return shard.to(x.dtype).contiguous()
