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
// bytes16 packs the low 8 bits of 16 numbers; byte_of returns number e of them.
static __device__ uint4 bytes16(const u32* code) {
    u32 word[4] = {0, 0, 0, 0};
    #pragma unroll
    for (int e = 0; e < 16; ++e) word[e / 4] |= (code[e] & 0xff) << 8 * (e % 4);
    return make_uint4(word[0], word[1], word[2], word[3]);
}
static __device__ u32 byte_of(uint4 word, int e) {
    return ((e < 4 ? word.x : e < 8 ? word.y : e < 12 ? word.z : word.w) >> 8 * (e % 4)) & 0xff;
}
// by_product: divide as torch does on GPUs, by multiplying by the rounded reciprocal. This gives other bits than a division, and
// other codes at ties.
static __device__ float divided(float value, float by, int by_product) {
    return by_product ? __fmul_rn(value, __fdiv_rn(1.0f, by)) : __fdiv_rn(value, by);
}
