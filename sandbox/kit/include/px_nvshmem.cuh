// NVSHMEM's device functions under their own names, for sources that sandbox.kit.shmem compiles. px.cuh is included before.
// The functions call an object that is linked to the kernel (px_nvshmem_wrapper.cu). The waits do not: they read this rank's own
// memory and trap after PX_TIMEOUT_MS, so that a lost signal is an error, not a hung GPU. The barriers have no time limit.
// my_pe, ptr, putmem_block, putmem_signal_block and barrier_all_block have run on two H100s, through the same object. The others
// compile and link but have never run.
// A PE is a rank of the world. To name memory or a signal of another PE, pass its address in this rank's own symmetric memory.
#define PX_NVSHMEM_SCOPES(X) X(thread, nvshmem_, ) X(warp, nvshmemx_, _warp) X(block, nvshmemx_, _block)
#define PX_NVSHMEM_MOVES(scope, prefix, suffix)                                                                                  \
    extern "C" __device__ void px_nvshmem_put_##scope(void*, const void*, u64, int);                                             \
    extern "C" __device__ void px_nvshmem_put_nbi_##scope(void*, const void*, u64, int);                                         \
    extern "C" __device__ void px_nvshmem_get_##scope(void*, const void*, u64, int);                                             \
    extern "C" __device__ void px_nvshmem_get_nbi_##scope(void*, const void*, u64, int);                                         \
    extern "C" __device__ void px_nvshmem_put_signal_##scope(void*, const void*, u64, u64*, u64, int, int);                      \
    extern "C" __device__ void px_nvshmem_put_signal_nbi_##scope(void*, const void*, u64, u64*, u64, int, int);                  \
    extern "C" __device__ void px_nvshmem_barrier_all_##scope();                                                                 \
    extern "C" __device__ void px_nvshmem_sync_all_##scope();                                                                    \
    PX_DI void prefix##putmem##suffix(void* to, const void* from, u64 bytes, int pe) {                                           \
        px_nvshmem_put_##scope(to, from, bytes, pe);                                                                             \
    }                                                                                                                            \
    PX_DI void prefix##putmem_nbi##suffix(void* to, const void* from, u64 bytes, int pe) {                                       \
        px_nvshmem_put_nbi_##scope(to, from, bytes, pe);                                                                         \
    }                                                                                                                            \
    PX_DI void prefix##getmem##suffix(void* to, const void* from, u64 bytes, int pe) {                                           \
        px_nvshmem_get_##scope(to, from, bytes, pe);                                                                             \
    }                                                                                                                            \
    PX_DI void prefix##getmem_nbi##suffix(void* to, const void* from, u64 bytes, int pe) {                                       \
        px_nvshmem_get_nbi_##scope(to, from, bytes, pe);                                                                         \
    }                                                                                                                            \
    PX_DI void prefix##putmem_signal##suffix(void* to, const void* from, u64 bytes, u64* signal, u64 value, int op, int pe) {    \
        px_nvshmem_put_signal_##scope(to, from, bytes, signal, value, op, pe);                                                   \
    }                                                                                                                            \
    PX_DI void prefix##putmem_signal_nbi##suffix(void* to, const void* from, u64 bytes, u64* signal, u64 value, int op,          \
                                                 int pe) {                                                                       \
        px_nvshmem_put_signal_nbi_##scope(to, from, bytes, signal, value, op, pe);                                               \
    }                                                                                                                            \
    PX_DI void prefix##barrier_all##suffix() { px_nvshmem_barrier_all_##scope(); }                                               \
    PX_DI void prefix##sync_all##suffix() { px_nvshmem_sync_all_##scope(); }
PX_NVSHMEM_SCOPES(PX_NVSHMEM_MOVES)

extern "C" __device__ int px_nvshmem_my_pe();
extern "C" __device__ int px_nvshmem_n_pes();
extern "C" __device__ void* px_nvshmem_ptr(const void*, int);
extern "C" __device__ void px_nvshmem_signal(u64*, u64, int, int);
extern "C" __device__ void px_nvshmem_fence();
extern "C" __device__ void px_nvshmem_quiet();
PX_DI int nvshmem_my_pe() { return px_nvshmem_my_pe(); }
PX_DI int nvshmem_n_pes() { return px_nvshmem_n_pes(); }
// Returns the same place in a PE's symmetric memory, to load from and store to; 0 if this GPU cannot reach it.
PX_DI void* nvshmem_ptr(const void* at, int pe) { return px_nvshmem_ptr(at, pe); }
PX_DI void nvshmem_fence() { px_nvshmem_fence(); }
PX_DI void nvshmem_quiet() { px_nvshmem_quiet(); }

// --- signals: words of 64 bits in symmetric memory ----------------------------------------------------------------------------
enum { NVSHMEM_SIGNAL_SET = 9, NVSHMEM_SIGNAL_ADD = 10 };
enum { NVSHMEM_CMP_EQ, NVSHMEM_CMP_NE, NVSHMEM_CMP_GT, NVSHMEM_CMP_LE, NVSHMEM_CMP_LT, NVSHMEM_CMP_GE };
PX_DI void nvshmemx_signal_op(u64* signal, u64 value, int op, int pe) { px_nvshmem_signal(signal, value, op, pe); }
PX_DI u64 nvshmem_signal_fetch(const u64* signal) {
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(signal) : "memory");
    return value;
}
PX_DI bool px_nvshmem_holds(u64 value, int compare, u64 wanted) {
    switch (compare) {
        case NVSHMEM_CMP_EQ: return value == wanted;
        case NVSHMEM_CMP_NE: return value != wanted;
        case NVSHMEM_CMP_GT: return value > wanted;
        case NVSHMEM_CMP_LE: return value <= wanted;
        case NVSHMEM_CMP_LT: return value < wanted;
        default: return value >= wanted;
    }
}
// One thread calls this: waits until `compare` holds between this PE's own signal word and `wanted`. Returns the word.
PX_DI u64 nvshmem_signal_wait_until(u64* signal, int compare, u64 wanted) {
    u64 value = nvshmem_signal_fetch(signal);
    if (px_nvshmem_holds(value, compare, wanted)) return value;
    const u64 start = px_now_ns();
    while (!px_nvshmem_holds(value = nvshmem_signal_fetch(signal), compare, wanted))
        if (px_now_ns() - start > 1000000ull * PX_TIMEOUT_MS) __trap();
    return value;
}
