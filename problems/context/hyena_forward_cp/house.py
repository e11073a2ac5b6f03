"""House kernel: Hyena operator; the first exchange applies a gate, an FFT in shared memory convolves a channel."""

from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm
from sandbox.kit.blocks import shared_fft

EXCHANGES = r"""
// x1, x2, v: [batch][channels][samples], all channels of this rank's `parts` chunks of the sequence. If parts = 2, rank r has
// chunks r and 2W-1-r of 2W. z: [batch][channels / W][W samples], whole sequences of the channels that a rank owns; y: like x1;
// both symmetric.
struct Sizes { i64 batch, channels, samples; int parts, world; };
static __device__ i64 chunk_of(const Sizes& a, int rank, int part) { return part ? 2 * a.world - 1 - rank : rank; }
// Returns the place of sample `at` of the sequence in its rank's part, and sets `owner` to this rank.
static __device__ i64 place_of(const Sizes& a, i64 at, int& owner) {
    const u32 chunk = a.samples / a.parts, number = (u32)at / chunk, part = number >= (u32)a.world;
    owner = part ? 2 * a.world - 1 - number : number;
    return part * (i64)chunk + (u32)at % chunk;
}
// Sends x2 * v to z of the ranks that own the channels.
extern "C" __global__ void __launch_bounds__(512) send_gates(Px px, const TYPE* x2, const TYPE* v, TYPE* z, i64 batch,
        i64 channels, i64 samples, int parts) {
    const Sizes a = Sizes{batch, channels, samples, parts, px.world};
    const u32 turn = px_turn(px, blockIdx.x);
    const int each = 16 / sizeof(TYPE);
    const i64 chunk = a.samples / a.parts, own = a.channels / a.world, length = a.samples * a.world;
    const u32 words = (chunk + each - 1) / each, lines = a.batch * a.channels * a.parts;
    const u32 all = lines * words, step = gridDim.x * blockDim.x;  // divisions of 32 bits are several times as fast
    for (u32 begin = blockIdx.x * blockDim.x + threadIdx.x; begin < all; begin += 2 * step) {
        uint4 left[2], right[2];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 2; ++k) {
            const u32 i = begin + k * step;
            const i64 from = i / words * chunk;
            if (i < all) left[k] = px_ld_part(x2 + from, i % words * each, chunk);
            if (i < all) right[k] = px_ld_part(v + from, i % words * each, chunk);
        }
        #pragma unroll
        for (int k = 0; k < 2; ++k) {
            const u32 i = begin + k * step;
            if (i >= all) break;
            const u32 line = i / words, row = line / (u32)a.parts, batch = row / (u32)a.channels;
            const u32 channel = row - batch * (u32)a.channels, owner = channel / (u32)own;
            float gate[each], value[each];
            px_unpack<TYPE>(left[k], gate);
            px_unpack<TYPE>(right[k], value);
            #pragma unroll
            for (int e = 0; e < each; ++e) value[e] *= gate[e];
            TYPE* there = px_at(px, (int)owner, z) + (batch * own + channel - owner * own) * length;
            px_st_part(there + chunk_of(a, px.rank, line % (u32)a.parts) * chunk, i % words * each, chunk, px_pack<TYPE>(value));
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);  // the samples of all ranks have arrived
}
// Stores a word of a channel's result in y of the rank that has its samples. row: index in [batch][channels]; at: first sample.
template <class T> static __device__ void send_back(const Px& px, T* y, const float* value, i64 row, i64 at, const Sizes& a) {
    int owner;
    const i64 place = place_of(a, at, owner);
    px_st16(px_at(px, owner, y) + row * a.samples + place, px_pack<T>(value));
}
// Writes x1 * y, transposed, to out: [batch][samples][channels]. A block transposes tiles of WIDE channels and 64 samples in
// shared memory, whose rows are an odd number of words of four bytes apart, so that few lanes of a warp use the same bank.
extern "C" __global__ void __launch_bounds__(512, 2) last_gate(const TYPE* x1, const TYPE* y, TYPE* out, i64 batch, i64 channels,
        i64 samples) {
    const int each = 16 / sizeof(TYPE), WIDE = 16 * each, SPARE = 4 / sizeof(TYPE);
    __shared__ __align__(4) TYPE tile[64][WIDE + SPARE];
    const i64 across = (samples + 63) / 64, down = (channels + WIDE - 1) / WIDE;
    for (i64 t = blockIdx.x; t < batch * down * across; t += gridDim.x) {
        const i64 entry = t / across / down, channel = t / across % down * WIDE, sample = t % across * 64;
        #pragma unroll 2
        for (int i = threadIdx.x; i < WIDE * 64 / each; i += blockDim.x) {
            const int c = i / (64 / each), first = i % (64 / each) * each;
            const i64 row = (entry * channels + channel + c) * samples, n = channel + c < channels ? samples : 0;
            float gate[each], value[each];
            px_unpack<TYPE>(px_ld_part(x1 + row, sample + first, n), gate);
            px_unpack<TYPE>(px_ld_part(y + row, sample + first, n), value);
            #pragma unroll
            for (int e = 0; e < each; ++e) tile[first + e][c] = from_float<TYPE>(gate[e] * value[e]);
        }
        __syncthreads();
        #pragma unroll 2
        for (int i = threadIdx.x; i < WIDE * 64 / each; i += blockDim.x) {
            const int s = i / 16, c = i % 16 * each;
            const u32* from = (const u32*)&tile[s][c];
            if (sample + s < samples)
                px_st_part(out + (entry * samples + sample + s) * channels, channel + c, channels,
                    make_uint4(from[0], from[1], from[2], from[3]));
        }
        __syncthreads();
    }
}
"""
CONVOLUTION = r"""
// Sends the first half of the tile, samples `first` to first + LENGTH of a channel. Ends with __syncthreads.
static __device__ void send_tile(const Px& px, const float2* tile, TYPE* y, i64 row, i64 first, const Sizes& a) {
    const int each = 16 / sizeof(TYPE);
    for (int i = threadIdx.x; i < LENGTH / each; i += blockDim.x) {
        float value[each];
        #pragma unroll
        for (int e = 0; e < each / 2; ++e) {
            const float2 pair = tile[fft_at(i * (each / 2) + e)];
            value[2 * e] = pair.x, value[2 * e + 1] = pair.y;
        }
        send_back(px, y, value, row, first + i * (i64)each, a);
    }
    __syncthreads();
}
// A block works on one filter at a time, and on the filter's channels one after another. A channel has M = W * samples numbers.
// Padded with as many zeros, they are M complex numbers in the block's tile of shared memory.
// h: [filters][taps]; bias: [channels / W], of this rank's channels; spectra: [blocks][M / 2 + 1], working memory.
extern "C" __global__ void __launch_bounds__(1024) convolve_channels(Px px, const TYPE* z, const TYPE* h, const TYPE* bias,
        TYPE* y, float4* spectra, const float2* roots, const float2* turns, const u32* pairs, i64 batch, i64 channels,
        i64 samples, int parts, int filters, i64 taps, int dim) {
    TILE
    float4* spectrum = spectra + (i64)blockIdx.x * (LENGTH / 2 + 1);
    const Sizes a = {batch, channels, samples, parts, px.world};
    const u32 turn = px_turn(px, blockIdx.x);
    const int each = 16 / sizeof(TYPE);
    const i64 own = a.channels / a.world;
    for (int filter = blockIdx.x; filter < filters; filter += gridDim.x) {
        fft_load<TYPE, LENGTH>(tile, h + filter * taps, min(taps, (i64)2 * LENGTH));
        fft_forward<LENGTH, LENGTH>(tile, roots);
        fft_multiply<true, LENGTH>(tile, spectrum, turns, pairs, 0);
        for (int c = 0; c < a.batch * dim; ++c) {
            const i64 entry = c / dim, channel = filter * dim + c % dim;
            fft_load<TYPE, LENGTH>(tile, z + (entry * own + channel) * LENGTH, LENGTH);
            fft_forward<LENGTH, LENGTH>(tile, roots);
            fft_multiply<false, LENGTH>(tile, spectrum, turns, pairs, to_float(bias[channel]));
            fft_backward<LENGTH, LENGTH>(tile, roots);
            send_tile(px, tile, y, entry * a.channels + px.rank * own + channel, 0, a);
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);  // the results of all ranks have arrived
}
// Loads two runs of LENGTH taps, one behind the other. Ends with __syncthreads.
static __device__ void load_runs(float2* tile, const TYPE* h, i64 taps, int one, int two) {
    for (int i = threadIdx.x; i < LENGTH; i += blockDim.x) {
        const i64 at = 2 * i < LENGTH ? (i64)one * LENGTH + 2 * i : (i64)(two - 1) * LENGTH + 2 * i;
        tile[fft_at(i)] = make_float2(at < taps ? to_float(h[at]) : 0.f, at + 1 < taps ? to_float(h[at + 1]) : 0.f);
    }
    __syncthreads();
}
static __device__ float2 sum_of(float2 a, float2 b, float2 c, float2 d) { return fft_plus(fft_times(a, b), fft_times(c, d)); }
// The same for channels of 2 LENGTH samples, of which a tile holds half, with zeros behind them. An earlier half z0 and a later
// half z1 give y0 = same * z0 + back * z1 and y1 = on * z0 + same * z1: the filter's taps between times of one half, from a later
// half to an earlier one (it is periodic), and the reverse. spectra: [blocks][4][LENGTH / 2 + 1].
extern "C" __global__ void __launch_bounds__(1024) convolve_halves(Px px, const TYPE* z, const TYPE* h, const TYPE* bias,
        TYPE* y, float4* spectra, const float2* roots, const float2* turns, const u32* pairs, i64 batch, i64 channels,
        i64 samples, int parts, int filters, i64 taps, int dim) {
    TILE
    const int entries = LENGTH / 2 + 1;
    float4* same = spectra + (i64)blockIdx.x * 4 * entries;
    float4 *on = same + entries, *back = on + entries, *kept = back + entries;
    const Sizes a = {batch, channels, samples, parts, px.world};
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 own = a.channels / a.world;
    for (int filter = blockIdx.x; filter < filters; filter += gridDim.x) {
        for (int k = 0; k < 3; ++k) {
            load_runs(tile, h + filter * taps, taps, k == 0 ? 0 : k == 1 ? 1 : 3, k == 0 ? 3 : k == 1 ? 0 : 2);
            fft_forward<LENGTH, LENGTH>(tile, roots);
            fft_multiply<true, LENGTH>(tile, same + k * entries, turns, pairs, 0);
        }
        for (int c = 0; c < a.batch * dim; ++c) {
            const i64 entry = c / dim, channel = filter * dim + c % dim, row = entry * a.channels + px.rank * own + channel;
            const TYPE* from = z + (entry * own + channel) * 2 * LENGTH;
            const float more = to_float(bias[channel]) / LENGTH;
            fft_load<TYPE, LENGTH>(tile, from, LENGTH);
            fft_forward<LENGTH, LENGTH>(tile, roots);
            fft_multiply<true, LENGTH>(tile, kept, turns, pairs, 0);  // divided by LENGTH
            fft_load<TYPE, LENGTH>(tile, from + LENGTH, LENGTH);
            fft_forward<LENGTH, LENGTH>(tile, roots);
            #pragma unroll 2
            for (int i = threadIdx.x; i < entries; i += blockDim.x) {
                const int p = fft_at(pairs[i] & 0xffff), q = fft_at(pairs[i] >> 16);
                const float2 angle = turns[i];
                const float4 s = same[i], o = on[i], b = back[i], z0 = kept[i];
                const float2 low0 = make_float2(z0.x * LENGTH, z0.y * LENGTH), high0 = make_float2(z0.z * LENGTH, z0.w * LENGTH);
                float2 low1 = tile[p], high1 = tile[q];
                fft_split(low1, high1, angle);
                const float2 s_low = make_float2(s.x + more, s.y), s_high = make_float2(s.z + more, s.w);
                const float2 o_low = make_float2(o.x, o.y), o_high = make_float2(o.z, o.w);
                float2 low = sum_of(s_low, low0, make_float2(b.x, b.y), low1);
                float2 high = sum_of(s_high, high0, make_float2(b.z, b.w), high1);
                low1 = sum_of(o_low, low0, s_low, low1), high1 = sum_of(o_high, high0, s_high, high1);
                fft_join(low, high, angle);
                fft_join(low1, high1, angle);
                tile[q] = high, tile[p] = low;
                kept[i] = float4{low1.x, low1.y, high1.x, high1.y};
            }
            __syncthreads();
            fft_backward<LENGTH, LENGTH>(tile, roots);
            send_tile(px, tile, y, row, 0, a);
            #pragma unroll 2
            for (int i = threadIdx.x; i < entries; i += blockDim.x) {
                const int p = fft_at(pairs[i] & 0xffff), q = fft_at(pairs[i] >> 16);
                const float4 y1 = kept[i];
                tile[q] = make_float2(y1.z, y1.w), tile[p] = make_float2(y1.x, y1.y);
            }
            __syncthreads();
            fft_backward<LENGTH, LENGTH>(tile, roots);
            send_tile(px, tile, y, row, LENGTH, a);
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);
}
"""
kernel_for = cuda.lazy(EXCHANGES)
with_convolution = cuda.lazy(EXCHANGES + shared_fft.SOURCE + CONVOLUTION)
BLOCKS, THREADS = 264, 512
MULTIPROCESSORS = 132
SHORTEST, LONGEST = 128, 16384
"""Lengths whose transform fits the shared memory of a block, if they are powers of two. Twice the longest is cut in halves."""
STATIC = 48 << 10
"""Bytes of static shared memory that a block may have; more must be requested at the launch."""
AT_ONCE = 32 << 20
"""Bytes of spectra that one library call works on, so that they stay in the cache."""


def solution(
    x1_seq: torch.Tensor,
    x2_seq: torch.Tensor,
    v_seq: torch.Tensor,
    h: torch.Tensor,
    conv_bias: torch.Tensor,
    num_groups: int,
    group_dim: int,
    group: dist.ProcessGroup | None = None,
    with_zigzag_splitting: bool = True,
) -> torch.Tensor:
    """x1_seq, x2_seq, v_seq [B, D, S], h [num_groups, T], conv_bias [D] -> [B, S, D], in the layout of the
    arguments.

    Per channel, over the whole sequence: x1 * (h conv (x2 * v) + bias * (x2 * v)); channel d uses filter d //
    group_dim. The convolution is circular with period 2 W S, in float32. With zigzag splitting rank r holds chunk r of
    2W, then chunk 2W-1-r; without it shards are in rank order.
    """
    team = symm.team(group)
    filters = num_groups // team.world
    mine = slice(team.rank * filters, (team.rank + 1) * filters)
    own = slice(mine.start * group_dim, mine.stop * group_dim)
    taps, bias = h[mine].contiguous(), conv_bias[own].contiguous()
    parts = 2 if with_zigzag_splitting else 1
    if not x1_seq.is_cuda or x1_seq.numel() == 0:
        return on_cpu(x1_seq, x2_seq * v_seq, taps, bias, group_dim, parts, team)
    x1, x2, v = x1_seq.contiguous(), x2_seq.contiguous(), v_seq.contiguous()
    batch, channels, samples = x1.shape
    length = samples * team.world
    in_block = SHORTEST <= length <= 2 * LONGEST and length & (length - 1) == 0
    inner, work = (length, 1) if length <= LONGEST else (length // 2, 4)
    shared = 8 * shared_fft.elements(inner)
    tile = f"__shared__ float2 tile[{shared // 8}];" if shared <= STATIC else "extern __shared__ float2 tile[];"
    kernels = with_convolution(x1.dtype, TILE=tile, LENGTH=inner) if in_block else kernel_for(x1.dtype)
    sizes = batch, channels, samples, parts
    # One buffer each is enough. A rank writes z after the last barrier of the previous call; the convolution that reads
    # z comes before that barrier. It writes y after the barrier of send_gates; the previous call's last gate comes
    # before that.
    z = team.empty((batch, filters * group_dim, length), x1.dtype, "z")
    y = team.empty((batch, channels, samples), x1.dtype, "y")
    result = x1.new_empty((batch, samples, channels))
    each = 16 // x1.element_size()
    blocks = min(max(-(-x1.numel() // (each * THREADS)), 1), BLOCKS)
    kernels.send_gates[blocks, THREADS](team.px, x2, v, z, *sizes)
    if in_block:
        tables = shared_fft.tables(inner, x1.device)
        threads = min(max(inner // 8, 32), 2 * THREADS)
        blocks_there = min(filters, MULTIPROCESSORS * min(2 * THREADS // threads, 4))
        spectra = torch.empty((blocks_there, work, inner // 2 + 1, 4), dtype=torch.float32, device=x1.device)
        shape = (blocks_there, threads) if shared <= STATIC else (blocks_there, threads, shared)
        constants = [x.data_ptr() for x in (spectra, tables.roots, tables.turns, tables.pairs)]
        convolve = kernels.convolve_channels if work == 1 else kernels.convolve_halves
        convolve[shape](team.px, z, taps, bias, y, *constants, *sizes, filters, taps.shape[1], group_dim)
    else:
        push(convolved(z, taps, bias, group_dim), y, parts, team)
    kernels.last_gate[min(-(-x1.numel() // (1024 * each)), 8 * BLOCKS), THREADS](x1, y, result, *sizes[:3])
    return result


def convolved(z: torch.Tensor, taps: torch.Tensor, bias: torch.Tensor, group_dim: int) -> torch.Tensor:
    """Convolves by library calls, some filters at a time: z [B, d, L], taps [g, T], bias [d] -> [B, d, L] like z."""
    length, wide = z.shape[-1], torch.promote_types(z.dtype, torch.float32)
    result = torch.empty_like(z)
    some = max(AT_ONCE // max(z.shape[0] * group_dim * length * 2 * wide.itemsize, 1), 1) if z.is_cuda else len(taps)
    for first in range(0, len(taps), some):
        rows = taps[first : first + some].to(wide)
        at = slice(first * group_dim, (first + len(rows)) * group_dim)
        part = z[:, at].to(wide)
        spectrum = torch.fft.rfft(part, n=2 * length).unflatten(1, (len(rows), group_dim))
        spectrum *= torch.fft.rfft(rows, n=2 * length)[:, None]
        y = torch.fft.irfft(spectrum.flatten(1, 2), n=2 * length)[..., :length]
        result[:, at] = torch.addcmul(y, bias[at, None].to(wide), part)
    return result


def on_cpu(
    x1: torch.Tensor, z: torch.Tensor, taps: torch.Tensor, bias: torch.Tensor, group_dim: int, parts: int, team: Any
) -> torch.Tensor:
    """Computes `solution` on CPU ranks, which read the peers' memory; z: the gated samples of this rank."""
    rank, own, chunk = team.rank, len(bias), x1.shape[-1] // parts
    peers = team.peers(team.stage(z.contiguous(), "z"))
    team.barrier()
    mine = [peer[:, rank * own : (rank + 1) * own] for peer in peers]
    chunks = [part[..., :chunk] for part in mine]
    if parts == 2:
        chunks += [part[..., chunk:] for part in reversed(mine)]
    y = convolved(torch.cat(chunks, dim=-1), taps, bias, group_dim) if z.numel() else torch.cat(chunks, dim=-1)
    return (x1 * push(y, team.empty(x1.shape, x1.dtype, "y"), parts, team)).transpose(1, 2).contiguous()


def push(whole: torch.Tensor, y: torch.Tensor, parts: int, team: Any) -> torch.Tensor:
    """Copies this rank's channels [B, d, L] to y [B, D, S] of all ranks, whose parts of the sequence they are; returns y."""
    channels, chunk = whole.shape[1], y.shape[-1] // parts
    chunks = whole.unflatten(-1, (parts * team.world, chunk))
    for rank, peer in enumerate(team.peers(y)):
        held = (rank, 2 * team.world - 1 - rank)[:parts]
        mine = peer.narrow(1, team.rank * channels, channels)
        mine.unflatten(-1, (parts, chunk)).copy_(chunks[:, :, held])
    team.barrier()
    return y
