// What px.cuh says in PTX, for the CPU.
static inline float to_float(float);
static inline float to_float(bf16);
static unsigned short emu_bf16(float value) {
    unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
PX_DI float to_float(f16 value) { _Float16 half; memcpy(&half, &value.bits, 2); return (float)half; }
PX_DI u64 px_now_ns() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return 1000000000ull * t.tv_sec + t.tv_nsec; }
PX_DI u32 px_load_acquire(u64 at) { emu_yield(); return __atomic_load_n((u32*)at, __ATOMIC_SEQ_CST); }
PX_DI u32 px_load_volatile(u64 at) { return __atomic_load_n((u32*)at, __ATOMIC_SEQ_CST); }
PX_DI void px_store_release(u64 at, u32 value) { __atomic_store_n((u32*)at, value, __ATOMIC_SEQ_CST); }
PX_DI uint4 px_ld16(const void* at) { if ((u64)at & 15) __trap(); uint4 v; memcpy(&v, at, 16); return v; }
PX_DI void px_st16(void* at, uint4 v) { if ((u64)at & 15) __trap(); memcpy(at, &v, 16); }
PX_DI void px_st_ll(void* at, u32 data, u32 flag) {
    if ((u64)at & 7) __trap();
    __atomic_store_n((u64*)at, (u64)flag << 32 | data, __ATOMIC_SEQ_CST);
}
PX_DI u32 px_ld_ll(const void* at, u32 flag, u32 timeout_ms = 20000) {
    const u64 start = px_now_ns();
    for (;;) {
        const u64 word = __atomic_load_n((const u64*)at, __ATOMIC_SEQ_CST);
        if (word >> 32 == flag) return (u32)word;
        if (px_now_ns() - start > 1000000ull * timeout_ms) __trap();
        emu_yield();
    }
}
PX_DI void px_st_ll16(void* at, uint2 data, u32 flag) {
    if ((u64)at & 15) __trap();
    px_st_ll(at, data.x, flag);
    px_st_ll((char*)at + 8, data.y, flag);
}
PX_DI uint2 px_ld_ll16(const void* at, u32 flag, u32 timeout_ms = 20000) {
    return {px_ld_ll(at, flag), px_ld_ll((const char*)at + 8, flag)};
}
PX_DI float px_exp(float x) { return expf(x); }
// Rounds half to even. Below 2^-6 codes are multiples of 2^-9, and adding 2^14 rounds to these.
static u32 emu_e4m3(float value) {
    const u32 bits = __float_as_uint(value), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
    if (size >= 0x43e00000) return sign | (size > 0x7f800000 ? 0x7f : 0x7e);
    if (size < 121u << 23) return sign | (__float_as_uint(__uint_as_float(size) + 16384.0f) - (141u << 23));
    return sign | ((size + 0x7ffff + (size >> 20 & 1) - (120u << 23)) >> 20);
}
// The exponents of a code and of a float differ by 120; a code of seven ones is NaN.
static u32 emu_f16(u32 code) {
    const u32 size = code & 0x7f;
    const _Float16 half = (_Float16)(__uint_as_float(size == 0x7f ? 0x7fffffffu : size << 20) * 0x1p120f);
    u16 bits;
    memcpy(&bits, &half, 2);
    return (code & 0x80) << 8 | bits;
}
PX_DI u16 e4m3x2_from(float low, float high) { return emu_e4m3(low) | emu_e4m3(high) << 8; }
PX_DI u32 f16x2_from_e4m3(u16 pair) { return emu_f16(pair) | emu_f16(pair >> 8) << 16; }
PX_DI u32 bf16x2_from(float low, float high) { return emu_bf16(low) | (u32)emu_bf16(high) << 16; }
template <class T> PX_DI float emu_half(u32 pair, int high) { return to_float(T{(u16)(pair >> 16 * high)}); }
template <class T> PX_DI void px_mma(float* sum, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    const unsigned g = emu_lane() / 4, q = emu_lane() % 4;
    for (unsigned k = 0; k < 16; ++k) {
        const unsigned place = k % 8 / 2;
        const u32 upper = __shfl_sync(~0u, k < 8 ? a0 : a2, g * 4 + place), lower = __shfl_sync(~0u, k < 8 ? a1 : a3, g * 4 + place);
        for (unsigned n = 0; n < 2; ++n) {
            const float b = emu_half<T>(__shfl_sync(~0u, k < 8 ? b0 : b1, (2 * q + n) * 4 + place), k % 2);
            sum[n] += emu_half<T>(upper, k % 2) * b;
            sum[2 + n] += emu_half<T>(lower, k % 2) * b;
        }
    }
}
