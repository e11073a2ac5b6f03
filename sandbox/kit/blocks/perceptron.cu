// change_and_sum replaces x by change(x, other) in place, and writes the sums of its columns to bias [width]. x, other:
// [rows][width]. blockIdx.x is a strip of columns, blockIdx.y a range of rows. A warp works on 32 words of a row, and the warps
// of a block on different rows. partial: [gridDim.y][width]; done: [gridDim.x], 0 before and after. The last block of a strip
// adds up the ranges, in the same order in every launch.
struct Loss {  // gradient of the mean squared error
    float factor;
    __device__ float operator()(float x, float target) const { return (x - target) * factor; }
};
struct Relu {  // no gradient where the hidden value is not positive
    __device__ float operator()(float x, float hidden) const { return hidden > 0 ? x : 0; }
};
template <class T, class Change> static __device__ void change_and_sum(T* x, const T* other, T* bias, float* partial, u32* done,
        i64 rows, i64 width, Change change) {
    const int each = 16 / sizeof(T), lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const i64 column = ((i64)blockIdx.x * 32 + lane) * each, range = (rows + gridDim.y - 1) / gridDim.y;
    const i64 low = min(blockIdx.y * range, rows), high = min(low + range, rows);
    __shared__ float sums[8][32][16 / sizeof(T)];
    float sum[8] = {};
    for (i64 row = low + warp; row < high; row += 2 * warps) {
        uint4 part[2][2];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 2; ++k) {
            const i64 n = row + k * warps < high ? width : 0;
            part[k][0] = px_ld_part(x + (row + k * warps) * width, column, n);
            part[k][1] = px_ld_part(other + (row + k * warps) * width, column, n);
        }
        #pragma unroll
        for (int k = 0; k < 2; ++k) {
            if (row + k * warps >= high) break;
            float value[8], second[8];
            px_unpack<T>(part[k][0], value);
            px_unpack<T>(part[k][1], second);
            #pragma unroll
            for (int e = 0; e < each; ++e) value[e] = change(value[e], second[e]);
            const uint4 rounded = px_pack<T>(value);
            px_st_part(x + (row + k * warps) * width, column, width, rounded);
            px_unpack<T>(rounded, value);  // add the rounded values, which the next matrix product reads
            #pragma unroll
            for (int e = 0; e < each; ++e) sum[e] += value[e];
        }
    }
    #pragma unroll
    for (int e = 0; e < each; ++e) sums[warp][lane][e] = sum[e];
    __syncthreads();
    if (warp == 0)
        #pragma unroll
        for (int e = 0; e < each; ++e) {
            float total = 0;
            for (int w = 0; w < warps; ++w) total += sums[w][lane][e];
            if (column + e < width) partial[blockIdx.y * width + column + e] = total;
        }
    if (!px_last_block(done + blockIdx.x, gridDim.y)) return;
    for (int i = threadIdx.x; i < 32 * each; i += blockDim.x) {
        const i64 at = (i64)blockIdx.x * 32 * each + i;
        float total = 0;
        if (at >= width) break;
        for (int y = 0; y < gridDim.y; ++y) total += ((const volatile float*)partial)[y * width + at];
        bias[at] = from_float<T>(total);
    }
}
extern "C" __global__ void __launch_bounds__(256) loss_gradient(TYPE* output, const TYPE* target, TYPE* bias, float* partial,
        u32* done, i64 rows, i64 width, float factor) {
    change_and_sum(output, target, bias, partial, done, rows, width, Loss{factor});
}
extern "C" __global__ void __launch_bounds__(256) relu_gradient(TYPE* gradient, const TYPE* hidden, TYPE* bias, float* partial,
        u32* done, i64 rows, i64 width) {
    change_and_sum(gradient, hidden, bias, partial, done, rows, width, Relu{});
}
