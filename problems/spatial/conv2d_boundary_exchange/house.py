"""House kernel: strip convolution with channels last; the launch that turns the strip also exchanges rows with neighbours."""

import torch
import torch.distributed as dist
from torch.nn.functional import conv2d

from sandbox.kit import cuda, symm
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(r"""
// A tile: RUN words (of 16 bytes) of ROWS rows of a matrix. In shared memory a row has one more 32-bit word, so that the elements
// of a column lie in different banks.
const int PITCH = 4 * RUN + 1;
struct Place { i64 matrix, row, column; };
// The tiles that cover `matrices` of [rows][columns].
template <class T> struct Tiles {
    static const int each = 16 / sizeof(T), width = RUN * each;
    const i64 across, of_matrix, count;  // tiles beside each other, of a matrix, and in all
    __device__ Tiles(i64 matrices, i64 rows, i64 columns)
        : across((columns + width - 1) / width), of_matrix((rows + ROWS - 1) / ROWS * across), count(matrices * of_matrix) {}
    __device__ Place place(i64 tile) const { return {tile / of_matrix, tile % of_matrix / across * ROWS, tile % across * width}; }
};
// The whole block calls this: loads a tile of x [rows][columns], and adds `bias` [columns] if there is one.
template <class T> static __device__ void load_tile(
        u32 (*tile)[PITCH], const T* x, i64 rows, i64 columns, i64 row, i64 column, const T* bias) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, each = 16 / sizeof(T);
    const i64 first = column + lane * each;
    const uint4 added = bias ? px_ld_part(bias, first, columns) : make_uint4(0, 0, 0, 0);
    __syncthreads();  // all threads have read the previous tile
    for (int top = warp; top < ROWS; top += 4 * warps) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 4; ++k) {
            const i64 at = row + top + k * warps;
            part[k] = px_ld_part(x + at * columns, first, at < rows ? columns : 0);
        }
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (bias) {
                float value[8], more[8];
                px_unpack<T>(part[k], value);
                px_unpack<T>(added, more);
                #pragma unroll
                for (int e = 0; e < each; ++e) value[e] += more[e];
                part[k] = px_pack<T>(value);
            }
            u32* to = tile[top + k * warps] + 4 * lane;
            to[0] = part[k].x, to[1] = part[k].y, to[2] = part[k].z, to[3] = part[k].w;
        }
    }
    __syncthreads();
}
// Returns 16 bytes of a column of a tile, from row `first` on.
template <class T> static __device__ uint4 column_word(u32 (*tile)[PITCH], int first, int column) {
    u32 word[4] = {0, 0, 0, 0};
    #pragma unroll
    for (int e = 0; e < 16 / sizeof(T); ++e)
        if (sizeof(T) == 4) word[e % 4] = tile[first + e][column];
        else word[e / 2] |= (u32)((const u16*)tile[first + e])[column] << 16 * (e % 2);
    return make_uint4(word[0], word[1], word[2], word[3]);
}
// Turns strips x [batches][channels][size] to y [batches][halo (from above), size, halo (from below)][channels], symmetric, and
// stores their border rows at the neighbours, too. Beyond the image there are zeros.
extern "C" __global__ void __launch_bounds__(512, 2) extend(Px px, const TYPE* x, TYPE* y, i64 batches, i64 channels, i64 size,
        i64 halo) {
    const u32 turn = px_turn(px, blockIdx.x);
    const Tiles<TYPE> tiles(batches, channels, size);
    const int each = tiles.each, groups = ROWS / each;
    __shared__ u32 tile[ROWS][PITCH];
    for (i64 number = blockIdx.x; number < tiles.count; number += gridDim.x) {
        const auto [batch, row, column] = tiles.place(number);
        load_tile<TYPE>(tile, x + batch * channels * size, channels, size, row, column, nullptr);
        TYPE* strip = y + batch * (size + 2 * halo) * channels;
        for (int i = threadIdx.x; i < groups * tiles.width && column + i / groups < size; i += blockDim.x) {
            const i64 pixel = column + i / groups, channel = row + i % groups * each;
            const uint4 word = column_word<TYPE>(tile, i % groups * each, i / groups), zeros = make_uint4(0, 0, 0, 0);
            px_st_part(strip + (halo + pixel) * channels, channel, channels, word);
            if (pixel < halo) {
                TYPE *above = strip + pixel * channels, *below = strip + (halo + size + pixel) * channels;
                if (px.rank > 0) px_st_part(px_at(px, px.rank - 1, below), channel, channels, word);
                else px_st_part(above, channel, channels, zeros);
            }
            if (pixel >= size - halo) {
                TYPE *above = strip + (pixel - (size - halo)) * channels, *below = strip + (pixel + 2 * halo) * channels;
                if (px.rank < px.world - 1) px_st_part(px_at(px, px.rank + 1, above), channel, channels, word);
                else px_st_part(below, channel, channels, zeros);
            }
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);  // the neighbours' rows have arrived
}
// Turns x [batches][pixels][channels] to y [batches][channels][pixels], and adds the bias.
extern "C" __global__ void __launch_bounds__(512) turn_back(const TYPE* x, const TYPE* bias, TYPE* y, i64 batches, i64 channels,
        i64 pixels) {
    const Tiles<TYPE> tiles(batches, pixels, channels);
    const int each = tiles.each, groups = ROWS / each;
    __shared__ u32 tile[ROWS][PITCH];
    for (i64 number = blockIdx.x; number < tiles.count; number += gridDim.x) {
        const auto [batch, row, column] = tiles.place(number);
        load_tile<TYPE>(tile, x + batch * channels * pixels, pixels, channels, row, column, bias);
        for (int i = threadIdx.x; i < groups * tiles.width && column + i / groups < channels; i += blockDim.x) {
            TYPE* to = y + (batch * channels + column + i / groups) * pixels;
            px_st_part(to, row + i % groups * each, pixels, column_word<TYPE>(tile, i % groups * each, i / groups));
        }
    }
}
""")
THREADS, TILE = 512, {"ROWS": 64, "RUN": 32}
EXCHANGING, TURNING = 256, 528
"""Blocks of the launch that waits for the neighbours, two on each multiprocessor at most, and of the other one."""


def solution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: int = 1,
    padding: int = 1,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """x [B, C, h, w], weight [Co, C, k, k], bias [Co] -> this rank's strip [B, Co, h_out, w_out].

    The strip is extended by `padding` rows of either neighbour, or by zeros at the ends of the image.
    """
    team = symm.team(group)
    if team.world == 1 or padding == 0:
        return conv2d(x, weight, bias, stride, padding)
    if not (x.is_cuda and x.dtype in cuda.FLOATS):
        return conv2d(by_library(x, padding, team), weight, bias, stride, (0, padding))
    last = torch.channels_last
    taps = weight.contiguous(memory_format=last)
    # The library adds a bias in a launch of its own, which takes longer than here.
    made = conv2d(extended(x, padding, team), taps, None, stride, (0, padding)).contiguous(memory_format=last)
    result = torch.empty_like(made, memory_format=torch.contiguous_format)
    batch, channels, pixels = *made.shape[:2], made[0, 0].numel()
    blocks = blocks_for(batch, pixels, channels * made.element_size(), TURNING)
    given = made.data_ptr(), 0 if bias is None else bias.contiguous(), result
    kernel_for(x.dtype, **TILE).turn_back[blocks, THREADS](*given, batch, channels, pixels)
    return result


def extended(x: torch.Tensor, padding: int, team: Team) -> torch.Tensor:
    """Strip x [B, C, h, w] with `padding` rows of either neighbour: [B, C, h + 2 padding, w], with channels last in memory."""
    kernel = kernel_for(x.dtype, **TILE).extend
    batch, channels, height, width = x.shape
    # Two are enough: a rank stores in call e+2 after the barrier of call e+1, which all ranks reach after the convolution of
    # call e.
    strips = team.out((batch, height + 2 * padding, width, channels), x.dtype, "extended", ring=2)
    blocks = blocks_for(batch, channels, height * width * x.element_size(), EXCHANGING)
    sizes = batch, channels, height * width, padding * width
    kernel[blocks, THREADS](team.px, x.contiguous(), strips.data_ptr(), *sizes)
    return strips.permute(0, 3, 1, 2)


def blocks_for(batch: int, rows: int, nbytes: int, most: int) -> int:
    """Blocks of a launch that turns `batch` matrices of so many rows of nbytes each."""
    return max(min(batch * -(-rows // TILE["ROWS"]) * -(-nbytes // (16 * TILE["RUN"])), most), 1)


def by_library(x: torch.Tensor, padding: int, team: Team) -> torch.Tensor:
    """Extends the strip by reading the rows in the neighbours' memory."""
    peers = team.peers(team.stage(torch.stack((x[:, :, :padding], x[:, :, -padding:]))))
    team.barrier()
    outside = torch.zeros_like(x[:, :, :padding])
    above = peers[team.rank - 1][1] if team.rank > 0 else outside
    below = peers[team.rank + 1][0] if team.rank < team.world - 1 else outside
    return torch.cat((above, x, below), dim=2)
