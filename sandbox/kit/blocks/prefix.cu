// Prefix sums over the threads of a block give each thread the place for what it has found:
// place = running + sum_before(is_found, all); running += all;
// The whole block calls this: returns the sum of `value` over the threads before this one; `all` becomes the sum over all.
static __device__ u32 sum_before(u32 value, u32& all) {
    __shared__ u32 warps[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 sum = value;
    #pragma unroll
    for (int away = 1; away < 32; away *= 2) {
        const u32 other = __shfl_sync(0xffffffffu, sum, (lane - away) & 31);
        if (lane >= away) sum += other;
    }
    __syncthreads();  // all threads have read `warps` of an earlier call
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    u32 before = sum - value;
    all = 0;
    for (int w = 0; w < blockDim.x / 32; ++w) {
        if (w < warp) before += warps[w];
        all += warps[w];
    }
    return before;
}
