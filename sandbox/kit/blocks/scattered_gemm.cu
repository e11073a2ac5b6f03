// Adds `count` arrays, which begin `apart` elements from one another at x, to y [n]: in float32, and rounded once.
template <class T> static __device__ void add_arrived_to(T* y, const T* x, i64 n, i64 apart, int count) {
    const int each = 16 / sizeof(T);
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i * each < n; i += (i64)gridDim.x * blockDim.x) {
        PxSum<T> total;
        total.add(px_ld_part(y, each * i, n));
        #pragma unroll 4
        for (int k = 0; k < count; ++k) total.add(px_ld_part(x + k * apart, each * i, n));
        px_st_part(y, each * i, n, total.rounded());
    }
}
