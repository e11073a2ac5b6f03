static __device__ float from_e4m3(u32 code) { return to_float(f16{(u16)f16x2_from_e4m3((u16)code)}); }
// 16 values to a word of codes, and back.
static __device__ uint4 to_e4m3(const float* value) {
    u32 word[4];
    #pragma unroll
    for (int k = 0; k < 4; ++k)
        word[k] = e4m3x2_from(value[4 * k], value[4 * k + 1]) | (u32)e4m3x2_from(value[4 * k + 2], value[4 * k + 3]) << 16;
    return make_uint4(word[0], word[1], word[2], word[3]);
}
static __device__ void from_e4m3(uint4 codes, float* value) {
    const u32 word[4] = {codes.x, codes.y, codes.z, codes.w};
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
        const u32 pair = f16x2_from_e4m3((u16)(word[k / 2] >> 16 * (k % 2)));
        value[2 * k] = to_float(f16{(u16)pair});
        value[2 * k + 1] = to_float(f16{(u16)(pair >> 16)});
    }
}
