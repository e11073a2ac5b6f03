// Adds `count` arrays, which begin `apart` elements from one another at x, to y [n]: in float32, and rounded once.
extern "C" __global__ void __launch_bounds__(512) add_arrived(TYPE* y, const TYPE* x, i64 n, i64 apart, int count) {
    const int each = 16 / sizeof(TYPE);
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i * each < n; i += (i64)gridDim.x * blockDim.x) {
        PxSum<TYPE> total;
        total.add(px_ld_part(y, each * i, n));
        #pragma unroll 4
        for (int k = 0; k < count; ++k) total.add(px_ld_part(x + k * apart, each * i, n));
        px_st_part(y, each * i, n, total.rounded());
    }
}
