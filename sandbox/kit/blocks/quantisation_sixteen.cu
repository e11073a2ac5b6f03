// Loads 16 elements of an array of n, from element `first` on, as floats; zeros beyond its end. All loads are in flight before
// the first conversion.
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
// Returns value / by, correctly rounded, from inverse = 1 / by, correctly rounded: three instructions, where a division has about
// twenty. Makes +0 of -0.
static __device__ float quotient(float value, float by, float inverse) {
    const float near = __fmul_rn(value, inverse);
    return __fmaf_rn(__fmaf_rn(-near, by, value), inverse, near);
}
// by_product: divide as torch does on GPUs, by multiplying by the rounded reciprocal. This gives other bits than a division, and
// other codes at ties.
static __device__ float divided(float value, float by, int by_product) {
    return by_product ? __fmul_rn(value, __fdiv_rn(1.0f, by)) : __fdiv_rn(value, by);
}
