"""House kernel: all-reduce that sends int8 codes, not floats; one part is averaged while the next is on its way."""

import torch

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.quantisation import SIXTEEN, divides_by_product

SOURCE = r"""
// Returns the largest value of the lanes of a group.
static __device__ float largest_of(float own, int lanes) {
    for (int away = lanes / 2; away > 0; away /= 2) own = fmaxf(own, __shfl_xor_sync(0xffffffffu, own, away));
    return own;
}
// Returns 16 values, at most 127 times the scale, as int8 codes. 1.5 * 2^23 added to a float rounds it, half to even, and leaves
// the integer in its lowest bits.
static __device__ uint4 to_int8(const float* value, float scale) {
    const float inverse = __fdiv_rn(1.0f, scale);
    u32 word[4], bits[16];
    #pragma unroll
    for (int e = 0; e < 16; ++e) bits[e] = __float_as_uint(quotient(value[e], scale, inverse) + 0x1.8p23f);
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
        const u32 low = __byte_perm(bits[4 * k], bits[4 * k + 1], 0x40);
        word[k] = __byte_perm(low, __byte_perm(bits[4 * k + 2], bits[4 * k + 3], 0x40), 0x5410);
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}
// Adds 16 codes times their scale to `total`. A code plus 128 becomes the lowest byte of the float 2^23.
static __device__ void add(uint4 codes, float scale, float* total) {
    const u32 word[4] = {codes.x ^ 0x80808080u, codes.y ^ 0x80808080u, codes.z ^ 0x80808080u, codes.w ^ 0x80808080u};
    #pragma unroll
    for (int e = 0; e < 16; ++e) {
        const float code = __uint_as_float(__byte_perm(word[e / 4], 0x4b000000u, 0x7650 + e % 4)) - (0x1p23f + 128);
        total[e] += __fmul_rn(code, scale);
    }
}
// Writes the average over the ranks of int8-quantised x to y. x, y: [n], cut into `slices` slices of `share` groups of q
// elements. Rank s owns slice s; with one slice every rank owns it. codes: [W (senders)][share][pitch] bytes, scales:
// [W (senders)][share], symmetric: what the owner of a slice received. A lane quantises 16 elements at a time, and writes their
// codes with one 16-byte store. `lanes` lanes (a power of two) have a group, and find its maximum by shuffles. Block b has the
// groups of range part * gridDim.x + b of every slice, and depends only on block b of the other ranks. While one part travels,
// the previous part is averaged.
extern "C" __global__ void __launch_bounds__(384, 2) average_codes(Px px, const TYPE* x, uint8_t* codes, float* scales, TYPE* y,
        i64 n, i64 q, i64 pitch, i64 share, int slices, int lanes, int parts, float inverse, int by_product) {
    const u32 slot = blockIdx.x, turn = px_turn(px, slot);
    px_enter(px, slot, turn);  // the buffers of two launches ago may be written again on all ranks
    const int lane = threadIdx.x % lanes, team = threadIdx.x / lanes, teams = blockDim.x / lanes, peer = px_thread();
    const bool to_all = slices == 1, is_peer = peer < px.world && peer != px.rank;
    const i64 all = (i64)teams * parts * gridDim.x, length = (share + all - 1) / all * teams;
    for (int part = 0; part <= parts; ++part) {
        if (part < parts) {
            const i64 low = min(((i64)part * gridDim.x + blockIdx.x) * length, share), high = min(low + length, share);
            for (int away = 1; away <= slices; ++away) {
                const int slice = (px.rank + away) % slices;
                for (i64 base = low; base < high; base += teams) {  // the same in all lanes, because they shuffle
                    const i64 group = base + team, start = (slice * share + group) * q, end = min(start + q, n);
                    const bool is_here = group < high && start < n;
                    float value[16], top = 0;
                    for (i64 i = 16 * lane; i < q && is_here; i += 16 * lanes) {
                        load16(x, start + i, end, value);
                        #pragma unroll
                        for (int e = 0; e < 16; ++e) top = fmaxf(top, fabsf(value[e]));
                    }
                    const float scale = divided(fmaxf(largest_of(top, lanes), 1e-8f), 127, by_product);
                    for (i64 i = 16 * lane; i < q && is_here; i += 16 * lanes) {
                        if (q > 16 * lanes) load16(x, start + i, end, value);
                        const uint4 sent = to_int8(value, scale);
                        uint8_t* at = codes + (px.rank * share + group) * pitch + i;
                        for (int next = 1; next <= (to_all ? px.world : 1); ++next)
                            px_st16(px_at(px, to_all ? (px.rank + next) % px.world : slice, at), sent);
                    }
                    if (lane == 0 && is_here)
                        for (int next = 1; next <= (to_all ? px.world : 1); ++next)
                            px_at(px, to_all ? (px.rank + next) % px.world : slice, scales)[px.rank * share + group] = scale;
                }
            }
            __syncthreads();
            if (is_peer) px_signal(px, peer, 300 + slot, 16 * turn + part + 1);
        }
        if (part == 0) continue;
        if (is_peer) px_wait(px, peer, 300 + slot, 16 * turn + part);
        __syncthreads();  // all ranks' codes of the previous part have arrived
        const int own = to_all ? 0 : px.rank;
        const i64 low = min(((part - 1ll) * gridDim.x + blockIdx.x) * length, share), high = min(low + length, share);
        for (i64 group = low + team; group < high; group += teams) {
            const i64 start = (own * share + group) * q, end = min(start + q, n);
            for (i64 i = 16 * lane; i < q && start < n; i += 16 * lanes) {
                float total[16] = {};
                for (int first = 0; first < px.world; first += 4) {
                    uint4 got[4];
                    float scale[4];
                    #pragma unroll  // eight loads are in flight before the first addition
                    for (int k = 0; k < 4; ++k) {
                        if (first + k >= px.world) break;
                        got[k] = px_ld16(codes + ((first + k) * share + group) * pitch + i);
                        scale[k] = *(const volatile float*)(scales + (first + k) * share + group);
                    }
                    #pragma unroll  // in rank order: the same bits on all ranks
                    for (int k = 0; k < 4; ++k)
                        if (first + k < px.world) add(got[k], scale[k], total);
                }
                #pragma unroll
                for (int e = 0; e < 16; ++e) total[e] *= inverse;
                for (int next = 1; next <= (to_all ? 1 : px.world); ++next)
                    store16(to_all ? y : px_at(px, (px.rank + next) % px.world, y), start + i, end, total);
            }
        }
    }
    if (!to_all) px_barrier(px, 600 + slot, turn);  // all ranks' averages have arrived
}
"""
kernel_for = cuda.lazy(SIXTEEN + SOURCE)
BLOCKS, THREADS, PARTS = 264, 384, 8
"""A signal's value is 16 times the launch's number plus the part. Block b uses slots b, b + 300 and b + 600."""

symm.reserve(2 << 30)  # two buffers of codes and two results of the largest sizes


def solution(flat_grad: torch.Tensor, block_size: int) -> torch.Tensor:
    """flat_grad, any shape -> the average over the ranks of its int8-quantised values, same shape and dtype, on every rank.

    Each group of block_size consecutive elements has one scale. Sums are float32 and rounded once. Codes go to all ranks, or
    to the owner of a slice, which sends averages back: whichever moves fewer bytes.
    """
    if not flat_grad.is_cuda:
        return in_torch(flat_grad, block_size)
    x, n, world = flat_grad.contiguous(), flat_grad.numel(), symm.world
    kernel = kernel_for(x.dtype).average_codes
    to_all = (world - 1) * (1 + 4 / block_size) <= x.element_size()
    slices = 1 if to_all else world
    share = -(-n // (block_size * slices))  # groups
    pitch = -(-block_size // 16) * 16
    # Two of each are enough: a rank writes in call e+2 only after all ranks have begun call e+1.
    codes = symm.out((world, share, pitch), torch.uint8, "codes", ring=2)
    scales = symm.out((world, share), torch.float32, "scales", ring=2)
    result = torch.empty_like(x) if to_all else symm.out(n, x.dtype, "averages")
    lanes = min(1 << (pitch // 16 - 1).bit_length(), 32)
    blocks = min(max(-(-share * slices * lanes // THREADS), 1), BLOCKS)
    parts = min(max(share * lanes // (blocks * THREADS * 2), 1), PARTS)
    by_product = int(divides_by_product(x.device))
    sizes = n, block_size, pitch, share, slices, lanes, parts
    kernel[blocks, THREADS](symm.px, x, codes, scales, result, *sizes, 1 / world, by_product)
    return result.view(flat_grad.shape)


def in_torch(flat_grad: torch.Tensor, block_size: int) -> torch.Tensor:
    """Computes `solution` on CPU ranks; each rank reads the codes of all ranks."""
    flat = flat_grad.reshape(-1)
    groups = torch.nn.functional.pad(flat, (0, -flat.numel() % block_size)).view(-1, block_size).float()
    scales = groups.abs().amax(dim=1, keepdim=True).clamp_(min=1e-8) / 127
    codes = (groups / scales).round_().clamp_(-127, 127).to(torch.int8)
    all_codes, all_scales = symm.peers(symm.stage(codes)), symm.peers(symm.stage(scales))
    symm.barrier()
    total = torch.zeros_like(groups)
    for code, scale in zip(all_codes, all_scales, strict=True):
        total += code.float() * scale
    return (total / symm.world).view(-1)[: flat.numel()].to(flat_grad.dtype).view(flat_grad.shape)
