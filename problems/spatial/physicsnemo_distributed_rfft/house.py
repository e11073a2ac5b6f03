"""House kernel: real 2-D FFT; only rows 0 .. n0/2 are sent and transformed, and each gives two rows of the result."""

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.fourier import row_pairs, transposed

kernels = cuda.lazy(r"""
// The field is real. So after the transform along the columns, row n0-k is the conjugate of row k, and for the whole transform
//     X[n0-k, l] = conj X[k, -l].
// The member that works on a pair of rows (`pairs`, see blocks.fourier) transforms row k only, and sends both to their owners.
//
// Sends row k of each pair to the member that works on it. halves: [images][width][n0/2 + 1], this rank's columns after their
// transform; rows: [images][count][W (senders)][width], symmetric.
extern "C" __global__ void __launch_bounds__(256) send_rows(
        Px px, const u64* halves, u64* rows, const i32* pairs, i64 images, i64 n0, i64 width, i64 count) {
    __shared__ u64 tile[32][33];
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 kept = n0 / 2 + 1, across = (width + 31) / 32, down = (count + 31) / 32;
    for (i64 t = blockIdx.x; t < images * down * across * px.world; t += gridDim.x) {
        const int peer = (px.rank + t) % px.world;
        const i64 part = t / px.world, place = part / across % down * 32, column = part % across * 32;
        const i64 image = part / across / down;
        #pragma unroll 4
        for (int i = threadIdx.x; i < 1024; i += blockDim.x) {  // neighbouring lanes have neighbouring rows k
            const i64 p = place + i % 32, c = column + i / 32, k = p < count && c < width ? pairs[peer * count + p] : -1;
            if (k >= 0) tile[i % 32][i / 32] = halves[(image * width + c) * kept + k];
        }
        __syncthreads();
        #pragma unroll 4
        for (int i = threadIdx.x; i < 1024; i += blockDim.x) {
            const i64 p = place + i / 32, c = column + i % 32;
            if (p < count && c < width && pairs[peer * count + p] >= 0)
                px_at(px, peer, rows)[((image * count + p) * px.world + px.rank) * width + c] = tile[i / 32][i % 32];
        }
        __syncthreads();
    }
    px_turn_barrier(px, blockIdx.x, turn);
}
// Sends both rows of each pair to their owners. spectra: [images][count][n1], rows k of the pairs, transformed; y:
// [images][height][n1/2 + 1], symmetric.
extern "C" __global__ void __launch_bounds__(256) send_spectra(Px px, const float* spectra_at, float* y_at, const i32* pairs,
        i64 images, i64 n0, i64 n1, i64 height, i64 count, float scale) {
    const u32 turn = px_turn(px, blockIdx.x);
    const i32* own = pairs + px.rank * count;
    const i64 kept = n1 / 2 + 1;
    for (i64 item = blockIdx.x; item < images * count; item += gridDim.x) {
        const i64 image = item / count, k = own[item % count], mirror = (n0 - k) % n0;
        if (k < 0) continue;
        const float2* from = (const float2*)spectra_at + item * n1;
        float2* upper = px_at(px, k / height, (float2*)y_at) + (image * height + k % height) * kept;
        float2* lower = px_at(px, mirror / height, (float2*)y_at) + (image * height + mirror % height) * kept;
        for (i64 first = threadIdx.x; first < kept; first += 4 * blockDim.x) {
            float2 at[4], opposite[4];
            #pragma unroll  // all loads are in flight before the first store
            for (int i = 0; i < 4; ++i) {
                const i64 l = min(first + i * (i64)blockDim.x, kept - 1);
                at[i] = from[l];
                opposite[i] = from[l ? n1 - l : 0];
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const i64 l = first + i * (i64)blockDim.x;
                if (l >= kept) break;
                upper[l] = make_float2(scale * at[i].x, scale * at[i].y);
                if (mirror != k) lower[l] = make_float2(scale * opposite[i].x, -scale * opposite[i].y);
            }
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);
}
""")
BLOCKS, THREADS = 396, 256
"""Three blocks on each multiprocessor; a block has barriers with the same block of every rank."""

symm.reserve(4 << 30)


def solution(
    x: torch.Tensor,
    s: tuple[int | None, int | None],
    dim: tuple[int, int],
    norm: str = "ortho",
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Real x [B, H, Wd/W], this rank's columns -> complex [B, n0/W, n1//2 + 1], its rows of the spectrum.

    s: global lengths (n0, n1) along dim = (complete axis, sharded axis); shorter fields are padded with zeros, longer ones
    cropped, None keeps a length. W divides n0. On one rank this is a single library call.
    """
    team = symm.team(group)
    x = x.movedim(dim, (-2, -1))
    n0, n1 = s[0] or x.shape[-2], s[1] or x.shape[-1] * team.world
    scale = {"ortho": (n0 * n1) ** -0.5, "forward": 1 / (n0 * n1), "backward": 1.0}[norm]
    if n0 % team.world:
        raise ValueError(f"{n0} rows of a spectrum do not divide by {team.world} ranks")
    if x.numel() == 0:
        spectrum = x.new_empty((*x.shape[:-2], n0 // team.world, n1 // 2 + 1), dtype=torch.complex64)
    elif team.world == 1:
        spectrum = torch.fft.rfft2(x, s=(n0, n1), norm=norm)
    else:
        spectrum = (on_gpus if x.is_cuda else in_torch)(x, n0, n1, scale, team)
    return spectrum.movedim((-2, -1), dim).contiguous()


def on_gpus(x: torch.Tensor, n0: int, n1: int, scale: float, team: symm.Team) -> torch.Tensor:
    """Returns this rank's rows of the scaled spectrum, in symmetric memory of a ring of two.

    Both launches end with a barrier. So a rank sends rows of the next call after all ranks have transformed those of
    this call. It writes into the result of two calls ago after the owner has begun the next call, and so has read that
    result.
    """
    width, batch = x.shape[-1], x.shape[:-2]
    images = x.numel() // (x.shape[-2] * width)
    plan = row_pairs(n0, team.world, x.device)
    halves = torch.fft.rfft(transposed(x), n=n0, dim=-1, norm="backward").contiguous()
    rows = team.empty((images, plan.count, team.world * width), torch.complex64, "rows")
    result = team.out((images, plan.height, n1 // 2 + 1), torch.complex64, "spectrum")
    blocks = min(images * plan.count, BLOCKS)
    given = halves.data_ptr(), rows.data_ptr(), plan.pairs
    kernels().send_rows[blocks, THREADS](team.px, *given, images, n0, width, plan.count)
    spectra = torch.fft.fft(rows, n=n1, dim=-1, norm="backward").contiguous()
    given = spectra.data_ptr(), result.data_ptr(), plan.pairs
    kernels().send_spectra[blocks, THREADS](team.px, *given, images, n0, n1, plan.height, plan.count, scale)
    return result.view(*batch, plan.height, n1 // 2 + 1)


def in_torch(x: torch.Tensor, n0: int, n1: int, scale: float, team: symm.Team) -> torch.Tensor:
    """Computes the rows on CPU ranks, which read the rows that they need, or their conjugates, in the peers' memory."""
    half = team.stage(torch.fft.rfft(x * scale, n=n0, dim=-2, norm="backward"))
    peers = team.peers(half)
    team.barrier()
    height = n0 // team.world
    mine = torch.arange(team.rank * height, (team.rank + 1) * height)
    mirrored = mine > n0 // 2
    source = torch.where(mirrored, n0 - mine, mine)
    rows = torch.cat([peer.index_select(-2, source) for peer in peers], dim=-1)
    rows.imag[..., mirrored, :] *= -1
    return torch.fft.fft(rows, n=n1, dim=-1, norm="backward").narrow(-1, 0, n1 // 2 + 1)
