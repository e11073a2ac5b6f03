"""House kernel: causal short convolution; blocks send the ends of chunks to the neighbours, then convolve rows."""

from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

kernel_for = cuda.lazy(r"""
// x, y: [rows][2 chunk]; weight: [filters][taps], where a row uses filter row % filters. boxes: [2 (turns)][2 (chunks)]
// [rows][halo] words of 8 bytes, a sample's bits and a flag, symmetric; halo = taps - 1. The samples before rank r's first
// chunk are the end of rank r-1's first chunk, those before its second chunk the end of rank r+1's second. The sequence is
// preceded by zeros, and the last rank's second chunk follows its first. Two turns are enough, because a rank writes to the
// neighbours that write to it: when it sends launch t+2, it has received their words of launch t+1, so they have ended launch t.
template <class T> static __device__ float sample_before(const Px& px, const T* row, const u64* box, i64 rows, i64 chunk,
        int halo, i64 at, int which, i64 back, u32 turn) {
    // Returns the sample `back` places (1 = the nearest) before chunk `which` of row `at`.
    if (which == 0 && px.rank == 0) return 0;
    if (which == 1 && px.rank == px.world - 1) return to_float(row[chunk - back]);
    const u32 bits = px_ld_ll(box + (which * rows + at) * halo + halo - back, turn);
    if constexpr (sizeof(T) == 4) return __uint_as_float(bits);
    else return to_float(T{(u16)bits});
}
template <class T> static __device__ u32 bits_of(T value) {
    if constexpr (sizeof(T) == 4) return __float_as_uint(value);
    else return value.bits;
}
// Convolves rows; a block has every gridDim.x-th row. TAPS: taps of the window in registers; the filter is padded with zeros in
// front to this length, and a thread computes a word of 16 bytes at a time. TAPS = 0: any number of taps, one output at a time.
extern "C" __global__ void __launch_bounds__(256) convolve_rows(Px px, const TYPE* x, const TYPE* weight, TYPE* y, u64* boxes,
        i64 rows, i64 filters, i64 chunk, int taps) {
    const u32 turn = px_turn(px, blockIdx.x);
    const int halo = taps - 1, each = 16 / sizeof(TYPE);
    u64* box = boxes + (i64)(turn & 1) * 2 * rows * halo;
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x)  // send the halos of all rows of this block
        for (int i = threadIdx.x; i < 2 * halo; i += blockDim.x) {
            const int which = i / halo, place = i % halo, peer = which ? px.rank - 1 : px.rank + 1;
            if (peer < 0 || peer >= px.world) continue;
            const TYPE last = x[row * 2 * chunk + which * chunk + chunk - halo + place];
            px_st_ll(px_at(px, peer, box) + (which * rows + row) * halo + place, bits_of(last), turn);
        }
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const TYPE* from = x + row * 2 * chunk;
        const TYPE* filter = weight + row % filters * taps;
        if (WINDOW > 0) {
            float tap[WINDOW + 1];
            #pragma unroll
            for (int j = 0; j < WINDOW; ++j) tap[j] = j < WINDOW - taps ? 0.0f : to_float(filter[j - (WINDOW - taps)]);
            for (i64 word = threadIdx.x; word * each < 2 * chunk; word += blockDim.x) {
                const int which = word * each >= chunk;
                float window[8 + 8];  // the eight samples before this word, then the word's own
                px_unpack<TYPE>(px_ld16(from + word * each), window + 8);
                if (word * each == which * chunk) {
                    #pragma unroll
                    for (int back = 1; back <= 8; ++back)
                        window[8 - back] = back <= halo ? sample_before(px, from, box, rows, chunk, halo, row, which, back,
                                turn) : 0;
                } else {
                    px_unpack<TYPE>(px_ld16(from + (word - 1) * each), window + 8 - each);
                    if (each < 8) {
                        if (word * each - 8 >= which * chunk) {
                            px_unpack<TYPE>(px_ld16(from + word * each - 8), window);
                        } else {
                            #pragma unroll
                            for (int back = 1; back <= 4; ++back)  // samples before the chunk
                                window[4 - back] = back <= halo ? sample_before(px, from, box, rows, chunk, halo, row, which,
                                        back, turn) : 0;
                        }
                    }
                }
                float out[8];
                #pragma unroll
                for (int e = 0; e < each; ++e) {
                    out[e] = 0;
                    #pragma unroll
                    for (int j = 0; j < WINDOW; ++j) out[e] += tap[j] * window[8 + e - (WINDOW - 1) + j];
                }
                px_st16(y + row * 2 * chunk + word * each, px_pack<TYPE>(out));
            }
        } else {
            for (i64 i = threadIdx.x; i < 2 * chunk; i += blockDim.x) {
                const int which = i >= chunk;
                float total = 0;
                for (int j = 0; j < taps; ++j) {
                    const i64 at = i - which * chunk - halo + j;  // within the chunk
                    const float sample = at >= 0 ? to_float(from[which * chunk + at])
                                                 : sample_before(px, from, box, rows, chunk, halo, row, which, -at, turn);
                    total += to_float(filter[j]) * sample;
                }
                y[row * 2 * chunk + i] = from_float<TYPE>(total);
            }
        }
    }
    px_reach(px, blockIdx.x, turn);
}
""")
BLOCKS, THREADS = 1000, 256
WINDOWS = (4, 7, 9)
"""Windows in taps: a thread computes 16-byte words from a window in registers, or one sample at a time if none fits."""


def solution(x: torch.Tensor, weight: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """x [B, D, 2C], weight [D, 1, K] -> [B, D, 2C].

    Rank r holds chunk r of 2W, then chunk 2W-1-r. Each is convolved causally with this rank's own
    weight, tap K-1 on the current sample; the K-1 samples before a chunk come from the rank that holds the
    chunk before it. Sums are float32, rounded once; C >= K-1.
    """
    team = symm.team(group)
    taps, chunk = weight.shape[-1], x.shape[-1] // 2
    if not x.is_cuda:
        return convolved(x, weight, team)
    x, weight, result = (
        x.contiguous(),
        weight.contiguous(),
        torch.empty_like(x, memory_format=torch.contiguous_format),
    )
    rows = x.shape[0] * x.shape[1]
    boxes = team.empty((2, 2, rows, max(taps - 1, 1)), torch.int64, "boxes")
    whole_words = chunk * x.element_size() % 16 == 0 and x.data_ptr() % 16 == 0
    window = next((size for size in WINDOWS if taps <= size and whole_words), 0)
    blocks = -(-rows // -(-rows // BLOCKS))  # about the same number of rows for each
    launch = kernel_for(x.dtype, WINDOW=window).convolve_rows[blocks, THREADS]
    launch(team.px, x, weight, result, boxes, rows, x.shape[1], chunk, taps)
    return result


def convolved(x: torch.Tensor, weight: torch.Tensor, team: Any) -> torch.Tensor:
    """Convolves on CPU ranks, which read the ends of chunks out of the neighbours' memory."""
    halo = weight.shape[-1] - 1
    first, second = x.chunk(2, dim=-1)
    start = first.shape[-1] - halo
    peers = team.peers(team.stage(torch.stack((first[..., start:], second[..., start:]))))
    team.barrier()
    before_first = peers[team.rank - 1][0] if team.rank else torch.zeros_like(peers[team.rank][0])
    last = team.rank == team.world - 1
    before_second = peers[team.rank][0] if last else peers[team.rank + 1][1]
    extended = (torch.cat((before_first, first), dim=-1), torch.cat((before_second, second), dim=-1))
    parts = [torch.nn.functional.conv1d(part, weight, groups=x.shape[1]) for part in extended]
    return torch.cat(parts, dim=-1)
