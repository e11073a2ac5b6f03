// What px.cuh says in PTX, for the CPU.
static inline float to_float(float);
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
    const u32 low = px_ld_ll(at, flag), high = px_ld_ll((const char*)at + 8, flag);
    return make_uint2(low, high);
}
PX_DI u32 bf16x2_from(float low, float high) { return emu_bf16(low) | (u32)emu_bf16(high) << 16; }
