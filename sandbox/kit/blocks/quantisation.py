"""CUDA text for 8-bit codes, 16 elements at a time, and the scale of FP8 delayed scaling.

    from sandbox.kit.blocks.quantisation import E4M3, SIXTEEN, divides_by_product, next_scale

    history, scale = next_scale(values, amax_history)      # one launch, without waiting for the GPU
    module = cuda.compile(SIXTEEN + E4M3 + SOURCE)

A lane with 16 elements writes their 8-bit codes with one 16-byte store.
"""

import functools
from typing import Any

import torch

from sandbox.kit import cuda

SIXTEEN = r"""
// 16 elements of an array of n, from element `first` on, as floats: zeros beyond its end. All loads before the first conversion.
template <class T> static __device__ void load16(const T* from, i64 first, i64 n, float* value) {
    const int each = 16 / sizeof(T);
    uint4 part[sizeof(T)];
    #pragma unroll
    for (int k = 0; k < sizeof(T); ++k) part[k] = px_ld_part(from, first + each * k, n);
    #pragma unroll
    for (int k = 0; k < sizeof(T); ++k) px_unpack<T>(part[k], value + each * k);
}
template <class T> static __device__ void store16(T* to, i64 first, i64 n, const float* value) {
    const int each = 16 / sizeof(T);
    #pragma unroll
    for (int k = 0; k < sizeof(T); ++k) px_st_part(to, first + each * k, n, px_pack<T>(value + each * k));
}
// 16 bytes from 16 numbers of 8 bits, and number e of them.
static __device__ uint4 bytes16(const u32* code) {
    u32 word[4] = {0, 0, 0, 0};
    #pragma unroll
    for (int e = 0; e < 16; ++e) word[e / 4] |= (code[e] & 0xff) << 8 * (e % 4);
    return make_uint4(word[0], word[1], word[2], word[3]);
}
static __device__ u32 byte_of(uint4 word, int e) {
    return ((e < 4 ? word.x : e < 8 ? word.y : e < 12 ? word.z : word.w) >> 8 * (e % 4)) & 0xff;
}
// On GPUs torch divides a tensor by a number by multiplying with the reciprocal: other bits, and other codes at ties.
static __device__ float divided(float value, float by, int by_product) {
    return by_product ? __fmul_rn(value, __fdiv_rn(1.0f, by)) : __fdiv_rn(value, by);
}
"""

E4M3 = r"""
// Rounds half to even, at most to 448. Below 2^-6 codes are multiples of 2^-9, which adding 2^14 rounds to.
static __device__ u32 to_e4m3(float value) {
    const u32 bits = __float_as_uint(value), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
    if (size >= 0x43e00000) return sign | (size > 0x7f800000 ? 0x7f : 0x7e);
    if (size < 121u << 23) return sign | (__float_as_uint(__uint_as_float(size) + 16384.0f) - (141u << 23));
    return sign | ((size + 0x7ffff + (size >> 20 & 1) - (120u << 23)) >> 20);
}
// Exponent and mantissa of the code at a float's place, scaled by the difference of the two biases. Exact.
static __device__ float from_e4m3(u32 code) {
    return __uint_as_float((code & 0x80) << 24 | (code & 0x7f) << 20) * 0x1p120f;
}
"""

SOURCE = r"""
// partial: [blocks], done: a counter, left at 0. The last block appends the largest magnitude of x to the history, which loses
// its oldest entry, and takes the scale from the largest entry.
template <class T> static __device__ void largest(const T* x, const bf16* history, u32* partial, u32* done, bf16* rolled,
        float* scale, i64 n, int length, float least, float codes, int by_product) {
    const int each = 16 / sizeof(T), lane = threadIdx.x % 32;
    __shared__ u32 warps[32];
    u32 most = 0;  // magnitudes are ordered as their bits are, and NaN is above all
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i * each < n; i += 4 * step) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first comparison
        for (int k = 0; k < 4; ++k) part[k] = px_ld_part(x, each * (i + k * step), n);
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            float value[8];
            px_unpack<T>(part[k], value);
            #pragma unroll
            for (int e = 0; e < each; ++e) most = max(most, __float_as_uint(value[e]) & 0x7fffffff);
        }
    }
    most = __reduce_max_sync(0xffffffffu, most);
    if (lane == 0) warps[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; ++w) most = max(most, warps[w]);
        partial[blockIdx.x] = most;
    }
    if (!px_last_block(done, gridDim.x) || threadIdx.x >= 32) return;
    for (int block = lane; block < gridDim.x; block += 32) most = max(most, ((const volatile u32*)partial)[block]);
    const bf16 latest = from_float<bf16>(__uint_as_float(__reduce_max_sync(0xffffffffu, most)));
    float top = to_float(latest);
    for (int i = lane; i < length; i += 32) {
        const bf16 entry = i + 1 < length ? history[i + 1] : latest;
        rolled[i] = entry;
        top = to_float(entry) > top ? to_float(entry) : top;
    }
    #pragma unroll
    for (int away = 16; away > 0; away /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, top, away);
        top = other > top ? other : top;
    }
    if (lane == 0) *scale = divided(top < least ? least : top, codes, by_product);
}
"""
ENTRY = r"""
extern "C" __global__ void __launch_bounds__(512) find_scale(const TYPE* x, const bf16* history, u32* partial, u32* done,
        bf16* rolled, float* scale, i64 n, int length, float least, float codes, int by_product) {
    largest<TYPE>(x, history, partial, done, rolled, scale, n, length, least, codes, by_product);
}
"""
TYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "float"}
BLOCKS, THREADS = 264, 512
LARGEST_CODE = 448.0
SMALLEST_MAXIMUM = 1e-12


@functools.cache
def kernel_for(dtype: torch.dtype) -> Any:
    """find_scale of a dtype; compiled when it is first asked for, so inside a first call."""
    return cuda.compile(SIXTEEN + SOURCE + ENTRY.replace("TYPE", TYPES[dtype])).find_scale


@functools.cache
def divides_by_product(device: torch.device) -> bool:
    """Whether torch divides a tensor of this device by a number as it does on GPUs: times the rounded reciprocal.

    The host waits for the device at the first call.
    """
    values = torch.arange(128, 256, dtype=torch.float32)
    return not torch.equal((values.to(device) / LARGEST_CODE).cpu(), values / LARGEST_CODE)


@functools.cache
def _counter(device: torch.device) -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32, device=device)  # zero again after every launch


def next_scale(values: torch.Tensor, history: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(history after appending max |values| and dropping its oldest entry, [H] bfloat16; scale [1] float32).

    values: any shape, bfloat16, float16 or float32; history: [H] bfloat16. The scale is the largest entry of the new history,
    at least 1e-12, over 448: so it may be a little below max |values| / 448. On GPUs one launch.
    """
    if not values.is_cuda:
        latest = values.abs().amax().to(history.dtype)
        rolled = torch.cat((history[1:], latest[None]))
        return rolled, rolled.amax().clamp(min=SMALLEST_MAXIMUM).float().reshape(1) / LARGEST_CODE
    flat, device = values.contiguous(), values.device
    blocks = min(max(-(-flat.nbytes // (64 * THREADS)), 1), BLOCKS)
    rolled = torch.empty_like(history)
    numbers = torch.empty(
        blocks + 1, dtype=torch.float32, device=device
    )  # the blocks' maxima, then the scale
    least = float(torch.tensor(SMALLEST_MAXIMUM).to(history.dtype))
    by_product = int(divides_by_product(device))
    kernel = kernel_for(flat.dtype)[blocks, THREADS]
    kernel(
        flat,
        history.contiguous(),
        numbers.view(torch.int32),
        _counter(device),
        rolled,
        numbers[blocks:],
        flat.numel(),
        history.numel(),
        least,
        LARGEST_CODE,
        by_product,
    )
    return rolled, numbers[blocks:]
