// Converts to an E4M3 code: rounds half to even, to at most 448; NaN stays NaN. Below 2^-6 codes are multiples of 2^-9, and
// adding 2^14 rounds to these.
static __device__ u32 to_e4m3(float value) {
    const u32 bits = __float_as_uint(value), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
    if (size >= 0x43e00000) return sign | (size > 0x7f800000 ? 0x7f : 0x7e);
    if (size < 121u << 23) return sign | (__float_as_uint(__uint_as_float(size) + 16384.0f) - (141u << 23));
    return sign | ((size + 0x7ffff + (size >> 20 & 1) - (120u << 23)) >> 20);
}
// Converts a code to float, exactly: moves exponent and mantissa to their places in a float, and multiplies by 2^120 because the
// exponents' biases, 7 and 127, differ by 120. A code of seven ones is NaN.
static __device__ float from_e4m3(u32 code) {
    const u32 size = code & 0x7f;
    return __uint_as_float((code & 0x80) << 24 | (size == 0x7f ? 0x7fffffffu : size << 20)) * 0x1p120f;
}
