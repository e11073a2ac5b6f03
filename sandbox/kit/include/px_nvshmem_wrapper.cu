// NVSHMEM's device functions under C names, for kernels that NVRTC compiles (sandbox/machine/nvshmem_package.py). px_nvshmem.cuh
// declares them and defines functions with NVSHMEM's own names that call them.
#include <nvshmem.h>
#include <nvshmemx.h>

typedef unsigned long long u64;
#define PX_OF_THREAD_WARP_AND_BLOCK(X) X(thread, nvshmem_, ) X(warp, nvshmemx_, _warp) X(block, nvshmemx_, _block)
#define PX_MOVES(scope, prefix, suffix)                                                                                          \
    extern "C" __device__ void px_nvshmem_put_##scope(void* to, const void* from, u64 bytes, int pe) {                           \
        prefix##putmem##suffix(to, from, bytes, pe);                                                                             \
    }                                                                                                                            \
    extern "C" __device__ void px_nvshmem_put_nbi_##scope(void* to, const void* from, u64 bytes, int pe) {                       \
        prefix##putmem_nbi##suffix(to, from, bytes, pe);                                                                         \
    }                                                                                                                            \
    extern "C" __device__ void px_nvshmem_get_##scope(void* to, const void* from, u64 bytes, int pe) {                           \
        prefix##getmem##suffix(to, from, bytes, pe);                                                                             \
    }                                                                                                                            \
    extern "C" __device__ void px_nvshmem_get_nbi_##scope(void* to, const void* from, u64 bytes, int pe) {                       \
        prefix##getmem_nbi##suffix(to, from, bytes, pe);                                                                         \
    }                                                                                                                            \
    extern "C" __device__ void px_nvshmem_put_signal_##scope(void* to, const void* from, u64 bytes, u64* signal, u64 value,      \
                                                             int op, int pe) {                                                   \
        prefix##putmem_signal##suffix(to, from, bytes, (uint64_t*)signal, value, op, pe);                                        \
    }                                                                                                                            \
    extern "C" __device__ void px_nvshmem_put_signal_nbi_##scope(void* to, const void* from, u64 bytes, u64* signal, u64 value,  \
                                                                 int op, int pe) {                                               \
        prefix##putmem_signal_nbi##suffix(to, from, bytes, (uint64_t*)signal, value, op, pe);                                    \
    }                                                                                                                            \
    extern "C" __device__ void px_nvshmem_barrier_all_##scope() { prefix##barrier_all##suffix(); }                               \
    extern "C" __device__ void px_nvshmem_sync_all_##scope() { prefix##sync_all##suffix(); }
PX_OF_THREAD_WARP_AND_BLOCK(PX_MOVES)

extern "C" __device__ int px_nvshmem_my_pe() { return nvshmem_my_pe(); }
extern "C" __device__ int px_nvshmem_n_pes() { return nvshmem_n_pes(); }
extern "C" __device__ void* px_nvshmem_ptr(const void* at, int pe) { return nvshmem_ptr(at, pe); }
extern "C" __device__ void px_nvshmem_signal(u64* signal, u64 value, int op, int pe) {
    nvshmemx_signal_op((uint64_t*)signal, value, op, pe);
}
extern "C" __device__ void px_nvshmem_fence() { nvshmem_fence(); }
extern "C" __device__ void px_nvshmem_quiet() { nvshmem_quiet(); }
