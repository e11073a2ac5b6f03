// The list (few, many): number 2t is the address of tensor t, number 2t + 1 its length. Tensors from number `dense` on are
// experts'.
static __device__ float power(float value, float p) {
    return p == 2 ? value * value : p == 1 ? fabsf(value) : powf(fabsf(value), p);
}
// Computes the p-norm of all gradients of all ranks. partial: [2][blocks]; done: a counter, 0 before and after; boxes: as in
// px_swap. The last block adds up the blocks' sums, in the same order in every call, then the ranks' sums. out: [3], the norm,
// then the factors that clip the dense and the experts' gradients. The experts' gradients are divided by `divisor` first; their
// factor contains this.
extern "C" __global__ void __launch_bounds__(512) sum_all(Px px, PxNumbers few, const i64* many, float* partial, u32* done,
        uint4* boxes, float* out, int tensors, int dense, float p, float divisor, float max_norm) {
    const int each = 16 / sizeof(TYPE), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __shared__ float warps[2][32];
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x;
    float sums[2] = {0, 0};
    for (int t = 0; t < tensors; ++t) {
        const TYPE* from = (const TYPE*)px_number(few, many, 2 * t);
        const i64 n = px_number(few, many, 2 * t + 1);
        float sum = 0;
        for (i64 i = first; i * each < n; i += 4 * step) {
            uint4 part[4];
            #pragma unroll  // all loads are in flight before the first addition
            for (int k = 0; k < 4; ++k) part[k] = px_ld_part(from, each * (i + k * step), n);
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                float value[8];
                px_unpack<TYPE>(part[k], value);
                #pragma unroll
                for (int e = 0; e < each; ++e) sum += power(value[e], p);
            }
        }
        sums[t >= dense] += sum;
    }
    #pragma unroll
    for (int family = 0; family < 2; ++family) {
        const float sum = px_warp_sum(sums[family]);
        if (lane == 0) warps[family][warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        float sum = 0;
        for (int w = 0; w < blockDim.x / 32; ++w) sum += warps[threadIdx.x][w];
        partial[threadIdx.x * gridDim.x + blockIdx.x] = sum;
    }
    if (!px_last_block(done, gridDim.x)) return;
    const u32 turn = px_turn(px, 0);
    if (warp == 0) {
        float own[2];
        #pragma unroll
        for (int family = 0; family < 2; ++family) {
            float sum = 0;
            for (int block = lane; block < gridDim.x; block += 32)
                sum += ((const volatile float*)partial)[family * gridDim.x + block];
            own[family] = px_warp_sum(sum);
        }
        const uint2 got = px_swap(px, boxes, make_uint2(__float_as_uint(own[0]), __float_as_uint(own[1])), turn);
        float total[2] = {0, 0};
        for (int rank = 0; rank < px.world; ++rank) {  // the same bits on all ranks
            total[0] += __uint_as_float(__shfl_sync(0xffffffffu, got.x, rank));
            total[1] += __uint_as_float(__shfl_sync(0xffffffffu, got.y, rank));
        }
        if (lane == 0) {
            const float all = total[0] + total[1] / power(divisor, p);
            const float norm = p == 2 ? sqrtf(all) : p == 1 ? all : powf(all, 1 / p);
            const float factor = norm > max_norm ? max_norm / norm : 1.0f;
            out[0] = norm;
            out[1] = factor;
            out[2] = factor / divisor;
        }
    }
    px_reach(px, 0, turn);
}
// Multiplies the gradients by their factors, from the end to the beginning, because what was read last is still cached. Gradients
// whose factor is 1 are not written.
extern "C" __global__ void __launch_bounds__(512) scale_all(PxNumbers few, const i64* many, const float* factors, int tensors,
        int dense) {
    const int each = 16 / sizeof(TYPE);
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x;
    for (int t = tensors - 1; t >= 0; --t) {
        const float factor = factors[1 + (t >= dense)];
        if (factor == 1) continue;
        TYPE* at = (TYPE*)px_number(few, many, 2 * t);
        const i64 n = px_number(few, many, 2 * t + 1), words = (n + each - 1) / each;
        for (i64 i = first; i < words; i += 4 * step) {
            uint4 part[4];
            #pragma unroll
            for (int k = 0; k < 4; ++k)
                if (i + k * step < words) part[k] = px_ld_part(at, each * (words - 1 - i - k * step), n);
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                if (i + k * step >= words) break;
                float value[8];
                px_unpack<TYPE>(part[k], value);
                #pragma unroll
                for (int e = 0; e < each; ++e) value[e] *= factor;
                px_st_part(at, each * (words - 1 - i - k * step), n, px_pack<TYPE>(value));
            }
        }
    }
}
