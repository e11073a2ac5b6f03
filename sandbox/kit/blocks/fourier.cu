// x: [blocks][rows][columns], y: [blocks][columns][rows]. A block transposes tiles of 32 x 32 elements in shared memory, so
// that x is read and y is written in runs of 32 elements.
extern "C" __global__ void __launch_bounds__(256) transpose(const TYPE* x, TYPE* y, i64 blocks, i64 rows, i64 columns) {
    __shared__ TYPE tile[32][33];
    const i64 down = (rows + 31) / 32, across = (columns + 31) / 32;
    for (i64 t = blockIdx.x; t < blocks * down * across; t += gridDim.x) {
        const i64 row = t / across % down * 32, column = t % across * 32, base = t / across / down * rows * columns;
        #pragma unroll 4
        for (int i = threadIdx.x; i < 1024; i += blockDim.x)
            if (row + i / 32 < rows && column + i % 32 < columns)
                tile[i / 32][i % 32] = x[base + (row + i / 32) * columns + column + i % 32];
        __syncthreads();
        #pragma unroll 4
        for (int i = threadIdx.x; i < 1024; i += blockDim.x)
            if (column + i / 32 < columns && row + i % 32 < rows)
                y[base + (column + i / 32) * rows + row + i % 32] = tile[i % 32][i / 32];
        __syncthreads();
    }
}
