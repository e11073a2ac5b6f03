"""House kernel: FP8 dequantisation; ranks send codes and scales, and multiply one part while the next is on its way."""

import torch

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.quantisation import E4M3

SOURCE = r"""
template <class Y> static __device__ float number_of(Y value) { return to_float(value); }
static __device__ float number_of(uint8_t code) { return from_e4m3(code); }
template <class T> struct alignas(sizeof(T) * EACH) Several { T at[EACH]; };

// The whole block calls this: multiplies elements low to high of a chunk by their scales.
static __device__ void multiply(const CODE* y, const TYPE* s, float* x, i64 low, i64 high, int shift) {
    const i64 step = (i64)EACH * blockDim.x;
    for (i64 i = low + EACH * threadIdx.x; i < high; i += 4 * step) {
        Several<CODE> codes[4];
        float scale[4];
        #pragma unroll  // all loads are in flight before the first product
        for (int k = 0; k < 4; ++k) {
            if (i + k * step >= high) break;
            codes[k] = *(const Several<CODE>*)(y + i + k * step);
            scale[k] = to_float(s[(i + k * step) >> shift]);
        }
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (i + k * step >= high) break;
            Several<float> product;
            #pragma unroll
            for (int e = 0; e < EACH; ++e) product.at[e] = __fmul_rn(number_of(codes[k].at[e]), scale[k]);
            *(Several<float>*)(x + i + k * step) = product;
        }
    }
}
// Sends codes and scales to their receivers, which multiply each code by its scale. y: [W (receivers)][n] codes; s:
// [W][n >> shift] scales; there: [W (senders)][pitch] codes and there_scales: [W (senders)][n >> shift], symmetric, what a rank
// received; x: [W (senders)][n]. A thread multiplies EACH codes at a time, which have one scale. Block b has the elements of
// range part * gridDim.x + b of every chunk and depends only on block b of the other ranks. While one part travels, this rank's
// own codes and the previous part are multiplied.
extern "C" __global__ void __launch_bounds__(512, 2) dequantise(Px px, const CODE* y, const TYPE* s, CODE* there,
        TYPE* there_scales, float* x, i64 n, i64 pitch, int shift, int parts) {
    const u32 slot = blockIdx.x, turn = px_turn(px, slot);
    px_enter(px, slot, turn);  // all ranks have multiplied the codes of two launches ago
    const int peer = px_thread();
    const bool is_peer = peer < px.world && peer != px.rank;
    const i64 length = (pitch / 64 + (i64)parts * gridDim.x - 1) / ((i64)parts * gridDim.x) * 64, scales = n >> shift;
    for (int part = 0; part <= parts; ++part) {
        if (part < parts) {
            const i64 low = min(((i64)part * gridDim.x + blockIdx.x) * length, n), high = min(low + length, n);
            for (int away = 1; away < px.world && low < high; ++away) {
                const int to = (px.rank + away) % px.world;
                px_copy(px_at(px, to, there) + px.rank * pitch + low, y + to * n + low, (high - low) * sizeof(CODE), threadIdx.x,
                        blockDim.x);
                TYPE* scales_there = px_at(px, to, there_scales) + px.rank * scales;
                for (i64 i = (low >> shift) + threadIdx.x; i <= (high - 1) >> shift; i += blockDim.x)
                    scales_there[i] = s[to * scales + i];
            }
            __syncthreads();
            if (is_peer) px_signal(px, peer, 512 + slot, 16 * turn + part + 1);
            multiply(y + px.rank * n, s + px.rank * scales, x + px.rank * n, low, high, shift);
        }
        if (part == 0) continue;
        if (is_peer) px_wait(px, peer, 512 + slot, 16 * turn + part);
        __syncthreads();  // all ranks' codes and scales of the previous part have arrived
        const i64 low = min(((part - 1ll) * gridDim.x + blockIdx.x) * length, n), high = min(low + length, n);
        for (int away = 1; away < px.world; ++away) {
            const int from = (px.rank + away) % px.world;
            multiply(there + from * pitch, there_scales + from * scales, x + from * n, low, high, shift);
        }
    }
}
"""
kernel_for = cuda.lazy(E4M3 + SOURCE)
BLOCKS, THREADS, PARTS = 264, 512, 8
"""A signal's value is 16 times the launch's number plus the part. Block b uses slot b + 512."""


def solution(local_y: torch.Tensor, local_s: torch.Tensor, block_size: int = 128) -> torch.Tensor:
    """local_y [W, M, N] codes, local_s [W, M·N/block_size] scales, any floating dtypes -> [W, M, N] float32.

    Slot s on rank r holds chunk r of rank s, each run of block_size elements of the flattened chunk times its scale. The
    result has the same bits as a product at the sender.

    Raises:
        ValueError: block_size does not divide M·N.
    """
    world, n = local_y.shape[0], local_y[0].numel()
    if n % block_size:
        raise ValueError(f"{n} elements a chunk do not divide into blocks of {block_size}")
    y, s = local_y.contiguous(), local_s.contiguous()
    is_coded = y.dtype == torch.float8_e4m3fn
    if s.dtype not in cuda.FLOATS or not (is_coded or y.dtype == s.dtype):
        y, s = y if is_coded else y.float(), s.float()  # exact, so the result is the same
    if is_coded:
        y = y.view(torch.uint8)
    if not y.is_cuda or block_size & (block_size - 1):
        return in_torch(y, s, block_size).view(local_y.shape)
    in_fours = block_size % 4 == 0 and y.data_ptr() % (4 * y.element_size()) == 0
    code = "uint8_t" if is_coded else cuda.FLOATS[s.dtype]
    kernel = kernel_for(s.dtype, CODE=code, EACH=4 if in_fours else 1).dequantise
    pitch = -(-n // 64) * 64
    # Two of each are enough: a rank sends in call e+2 only after all ranks have begun call e+1.
    there = symm.out((world, pitch), y.dtype, "codes", ring=2)
    there_scales = symm.out(s.shape, s.dtype, "scales", ring=2)
    x = torch.empty(local_y.shape, dtype=torch.float32, device=y.device)
    blocks = min(max(-(-n // (16 * THREADS)), 1), BLOCKS)
    parts = min(max(n // (blocks * THREADS * 16), 1), PARTS)
    places = there.data_ptr(), there_scales.data_ptr()
    kernel[blocks, THREADS](symm.px, y, s, *places, x, n, pitch, block_size.bit_length() - 1, parts)
    return x


def in_torch(y: torch.Tensor, s: torch.Tensor, block_size: int) -> torch.Tensor:
    """Multiplies on CPU ranks, or for unusual block sizes; ranks read their chunks from all ranks. y: uint8 codes."""
    all_codes, all_scales = symm.peers(symm.stage(y, "codes")), symm.peers(symm.stage(s, "scales"))
    symm.barrier()
    products = []
    for codes, scales in zip(all_codes, all_scales, strict=True):
        numbers = codes[symm.rank].view(-1, block_size)
        numbers = numbers.view(torch.float8_e4m3fn) if numbers.dtype == torch.uint8 else numbers
        products.append(numbers.float() * scales[symm.rank].float().unsqueeze(-1))
    return torch.stack(products)
