"""House kernel: inverse real 2-D FFT without a gather; of rows k and n0 - k only one is transformed and sent."""

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.fourier import row_pairs, transposed
from sandbox.kit.blocks.reshard import reshard

kernels = cuda.lazy(r"""
// The result is the real part of the transform of Z. So it is also the transform of the spectrum's Hermitian part
//     Y[k, j] = (w_j Z[k, j] + w_-j conj Z[n0-k, n1-j]) / 2,   w = 1, 2, 2, ..., 2, 1 for the stored j, 0 for others.
// Y[n0-k, ·] follows from Y[k, ·], so the member that works on both rows (`pairs`, see blocks.fourier) only computes Y[k, ·].
// combine sends rows to the members that work on their pairs, then computes y. x: [images][height][stored]; staged:
// [images][count][stored], symmetric; y: [images][count][n1]. Block b only reads what block b of the other ranks has sent.
static __device__ float2 complex_of(u64 bits) { return make_float2(__uint_as_float((u32)bits), __uint_as_float(bits >> 32)); }
extern "C" __global__ void __launch_bounds__(256) combine(Px px, const float* x_at, float* staged_at, float* y_at,
        const i32* pairs, i64 images, i64 n0, i64 n1, i64 stored, i64 height, i64 count) {
    const float2* x = (const float2*)x_at;
    float2* staged = (float2*)staged_at;
    float2* y = (float2*)y_at;
    const u32 turn = px_turn(px, blockIdx.x);
    for (i64 item = blockIdx.x; item < images * count; item += gridDim.x) {  // send this rank's rows to the other members
        const i64 image = item / count, place = item % count;
        for (int away = 1; away < px.world; ++away) {
            const int owner = (px.rank + away) % px.world;
            const i64 k = pairs[owner * count + place], row = k / height == px.rank ? k : (n0 - k) % n0;
            if (k < 0 || row / height != px.rank) continue;
            const u64* from = (const u64*)(x + (image * height + row % height) * stored);
            u64* to = (u64*)(px_at(px, owner, staged) + item * stored);
            #pragma unroll 4
            for (i64 j = threadIdx.x; j < stored; j += blockDim.x) to[j] = from[j];
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);
    for (i64 item = blockIdx.x; item < images * count; item += gridDim.x) {
        const i64 image = item / count, k = pairs[px.rank * count + item % count], mirror = (n0 - k) % n0;
        if (k < 0) continue;
        const bool k_here = k / height == px.rank, mirror_here = mirror / height == px.rank;
        // A row of another rank is in `staged`. It was written during this launch, so the loads must bypass the read-only cache.
        const volatile u64* a = (u64*)(k_here ? x + (image * height + k % height) * stored : staged + item * stored);
        const volatile u64* b = (u64*)(mirror_here ? x + (image * height + mirror % height) * stored : staged + item * stored);
        for (i64 first = threadIdx.x; first < stored; first += 4 * blockDim.x) {
            u64 up_bits[4], down_bits[4];
            #pragma unroll  // all loads are in flight before the first store
            for (int i = 0; i < 4; ++i) {
                const i64 j = min(first + i * (i64)blockDim.x, stored - 1);
                up_bits[i] = a[j];
                down_bits[i] = b[j];
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const i64 j = first + i * (i64)blockDim.x;
                if (j >= stored) break;
                const float2 up = complex_of(up_bits[i]), other = complex_of(down_bits[i]), down = make_float2(other.x, -other.y);
                if (j == 0 || 2 * j == n1) {
                    y[item * n1 + j] = make_float2((up.x + down.x) / 2, (up.y + down.y) / 2);
                } else {
                    y[item * n1 + j] = up;
                    y[item * n1 + n1 - j] = down;
                }
            }
        }
    }
}
// Sends columns to their owners. rows: [images][count][n1], rows k of the pairs, transformed; columns: [images][half][n0] of the
// receiver, symmetric, half = ceil(width / 2). Two real columns u and v are sent as one complex column u + iv: its row k, and its
// row n0 - k, which follows from the conjugates of u and v in row k.
extern "C" __global__ void __launch_bounds__(256) send_columns(Px px, const float* rows_at, float* columns_at, const i32* pairs,
        i64 images, i64 n0, i64 n1, i64 width, i64 count, float scale) {
    __shared__ float2 upper[32][33], lower[32][33];
    const float2* rows = (const float2*)rows_at;
    float2* columns = (float2*)columns_at;
    const i32* own = pairs + px.rank * count;
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 half = (width + 1) / 2, across = (half + 31) / 32, down = (count + 31) / 32;
    for (i64 t = blockIdx.x; t < images * down * across * px.world; t += gridDim.x) {
        const int peer = (px.rank + t) % px.world;
        const i64 tile = t / px.world, place = tile / across % down * 32, column = tile % across * 32;
        const i64 image = tile / across / down;
        #pragma unroll 4
        for (int i = threadIdx.x; i < 1024; i += blockDim.x) {
            const i64 p = place + i / 32, c = column + i % 32;
            if (p >= count || c >= half) continue;
            const float2* from = rows + (image * count + p) * n1 + peer * width + 2 * c;
            const float2 u = from[0], v = 2 * c + 1 < width ? from[1] : make_float2(0, 0);
            upper[i % 32][i / 32] = make_float2(scale * (u.x - v.y), scale * (u.y + v.x));
            lower[i % 32][i / 32] = make_float2(scale * (u.x + v.y), scale * (v.x - u.y));
        }
        __syncthreads();
        #pragma unroll 4
        for (int i = threadIdx.x; i < 1024; i += blockDim.x) {  // neighbouring lanes have neighbouring rows k
            const i64 p = place + i % 32, c = column + i / 32;
            const i64 k = p < count && c < half ? own[p] : -1;
            if (k < 0) continue;
            float2* to = px_at(px, peer, columns) + (image * half + c) * n0;
            to[k] = upper[i / 32][i % 32];
            if ((n0 - k) % n0 != k) to[n0 - k] = lower[i / 32][i % 32];
        }
        __syncthreads();
    }
    px_turn_barrier(px, blockIdx.x, turn);
}
""")
BLOCKS, THREADS = 396, 256
"""Three blocks on each multiprocessor; a block has barriers with the same block of every rank."""

symm.reserve(4 << 30)
if torch.cuda.is_available():
    # cuFFT is loaded at import, not while another rank's kernel waits for this rank's.
    torch.fft.ifft(torch.zeros(2, dtype=torch.complex64, device="cuda"))


def solution(
    x: torch.Tensor,
    s: tuple[int, int],
    dim: tuple[int, int],
    norm: str = "ortho",
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Complex x [.., H/W, n1//2 + 1], this rank's rows -> real [.., n0, n1/W], its columns.

    s: global lengths (n0, n1) along dim = (sharded axis, half axis), n0 = H; W divides both. Columns 0 and n1/2 of the spectrum
    need not be Hermitian: the imaginary part that they leave is dropped.
    """
    n0, n1 = s
    team = symm.team(group)
    x = x.movedim(dim, (-2, -1)).contiguous()
    height, stored = x.shape[-2:]
    if (height * team.world, stored) != (n0, n1 // 2 + 1) or n1 % team.world:
        raise ValueError(f"{height} x {stored} values of {team.world} ranks are no half spectrum of {n0} x {n1}")
    if x.numel() == 0:
        return x.real.new_empty((*x.shape[:-2], n0, n1 // team.world)).movedim((-2, -1), dim)
    scale = {"ortho": (n0 * n1) ** -0.5, "forward": 1.0, "backward": 1 / (n0 * n1)}[norm]
    field = on_gpus(x, n0, n1, scale, team) if x.is_cuda else in_torch(x, n0, n1, scale, team)
    return field.movedim((-2, -1), dim).contiguous()


def on_gpus(x: torch.Tensor, n0: int, n1: int, scale: float, team: symm.Team) -> torch.Tensor:
    """Returns this rank's columns of the scaled field.

    Single buffers are enough: a rank writes a buffer again only after the barrier of the other exchange, and all ranks
    read the buffer before that barrier.
    """
    height, stored = x.shape[-2:]
    width, images = n1 // team.world, x.numel() // (height * stored)
    plan = row_pairs(n0, team.world, x.device)
    staged = team.empty((images, plan.count, stored), torch.complex64, "staged")
    columns = team.empty((images, (width + 1) // 2, n0), torch.complex64, "columns")
    paired = x.new_empty((images, plan.count, n1))
    blocks = min(images * plan.count, BLOCKS)
    given = x.data_ptr(), staged.data_ptr(), paired.data_ptr(), plan.pairs
    kernels().combine[blocks, THREADS](team.px, *given, images, n0, n1, stored, height, plan.count)
    paired = torch.fft.ifft(paired, dim=-1, norm="forward").contiguous()
    given = paired.data_ptr(), columns.data_ptr(), plan.pairs
    kernels().send_columns[blocks, THREADS](team.px, *given, images, n0, n1, width, plan.count, scale)
    field = transposed(torch.fft.ifft(columns, dim=-1, norm="forward"))
    return torch.view_as_real(field).flatten(-2)[..., :width].reshape(*x.shape[:-2], n0, width)


def in_torch(x: torch.Tensor, n0: int, n1: int, scale: float, team: symm.Team) -> torch.Tensor:
    """Computes the columns on CPU ranks, without a gather: columns whose mirror images are not stored count twice."""
    stored = x.shape[-1]
    weight = torch.full((stored,), 2 * scale, device=x.device)
    weight[0] = scale
    if n1 % 2 == 0:
        weight[-1] = scale
    rows = torch.fft.ifft(x * weight, n=n1, dim=-1, norm="forward")
    columns = reshard(rows, rows.dim() - 1, rows.dim() - 2, team)
    return torch.fft.ifft(columns, dim=-2, norm="forward").real
