// partial: [blocks]; done: a counter, 0 before and after. The last block writes the history to `rolled`, without its oldest entry
// and with the largest magnitude of x at its end. The scale is the largest entry, at least `least`, divided by `codes`.
extern "C" __global__ void __launch_bounds__(512) find_scale(const TYPE* x, const bf16* history, u32* partial, u32* done,
        bf16* rolled, float* scale, i64 n, int length, float least, float codes, int by_product) {
    const int each = 16 / sizeof(TYPE), lane = threadIdx.x % 32;
    __shared__ u32 warps[32];
    u32 most = 0;  // the bits of magnitudes sort like their values, with NaN above all
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i * each < n; i += 4 * step) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first comparison
        for (int k = 0; k < 4; ++k) part[k] = px_ld_part(x, each * (i + k * step), n);
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            float value[8];
            px_unpack<TYPE>(part[k], value);
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
