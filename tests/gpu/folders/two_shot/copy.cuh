template <class T> __device__ void copy(const T* from, T* to, i64 count) {
    const i64 step = i64(gridDim.x) * blockDim.x;
    for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) to[i] = from[i];
}
