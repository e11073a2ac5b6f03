// CUDA C++ for GPU ranks: the peers' memory, signals and barriers over NVLink, 16-byte and low-latency words, TMA bulk copies.
// Included before every source that sandbox.kit.cuda compiles. Includes nothing, so that NVRTC needs a few milliseconds for it.
// Written for sm_90a and later. Of the TMA functions the adding ones have never run: they only compile. Everything else has, on H200.
#pragma once

typedef int i32;
typedef long long i64;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
#ifdef __CUDACC_RTC__  // as libcu++ has them under NVRTC, and the system under nvcc
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
typedef long int64_t;
typedef unsigned long uint64_t;
#endif

#define PX_MAX_WORLD 8
#define PX_SLOTS 1008  // slots 0..1007 of a pad are the kernel's; use blockIdx.x for barriers between equal blocks
#ifndef PX_TIMEOUT_MS
#define PX_TIMEOUT_MS 2000  // then the kernel traps: a lost signal is an error, not a hung GPU
#endif
#define PX_DI static __device__ __forceinline__

// --- 16-bit floats: storage types; compute in float -----------------------------------------------------------------------
struct __align__(2) bf16 { u16 bits; };
struct __align__(2) f16 { u16 bits; };

PX_DI float px_infinity() { return __uint_as_float(0x7f800000u); }
PX_DI float to_float(float value) { return value; }
PX_DI float to_float(double value) { return (float)value; }
PX_DI float to_float(bf16 value) { return __uint_as_float((u32)value.bits << 16); }
PX_DI float to_float(f16 value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}
template <class T> PX_DI T from_float(float value);
template <> __device__ __forceinline__ float from_float<float>(float value) { return value; }
template <> __device__ __forceinline__ double from_float<double>(float value) { return value; }
template <> __device__ __forceinline__ bf16 from_float<bf16>(float value) {
    bf16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}
template <> __device__ __forceinline__ f16 from_float<f16>(float value) {
    f16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}
// Two bf16 in a word, `low` first in memory.
PX_DI u32 bf16x2_from(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
PX_DI float bf16x2_low(u32 pair) { return __uint_as_float(pair << 16); }
PX_DI float bf16x2_high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// --- peers -----------------------------------------------------------------------------------------------------------------
struct Px {
    u64 buf[PX_MAX_WORLD];  // each member's heap, as mapped on this GPU
    u64 sig[PX_MAX_WORLD];  // each member's signal pad
    int rank, world;        // of the team, not of the world, for symm.sub(...).px
};

// Up to 64 numbers by value: as a kernel's parameter it takes a list of ints, and what is left out is 0.
struct PxNumbers { i64 at[64]; };

// The same place in a peer's heap: `mine` points into this rank's heap (symm.empty, symm.stage, symm.out).
template <class T> PX_DI T* px_at(const Px& px, int peer, T* mine) {
    return (T*)(px.buf[peer] + ((u64)mine - px.buf[px.rank]));
}

PX_DI u32 px_load_acquire(u64 at) {
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
PX_DI void px_store_release(u64 at, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
PX_DI u64 px_now_ns() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// One thread of a block calls it: "this block is at place `number`". `pkb-arena profile` shows the time between two stamps of a block;
// outside a profile it is nothing.
#ifdef PX_STAMPS
extern "C" __device__ u64 px_stamp_ring;
__device__ u64 px_stamp_ring = 0;  // the ring: how many stamps there were, room for how many (0: none are taken), then the time and place of each
PX_DI void px_stamp(u32 number) {
    u64* ring = (u64*)px_stamp_ring;
    if (!ring || !*(volatile u64*)(ring + 1)) return;
    const u64 at = atomicAdd(ring, 1ull);
    if (at >= ring[1]) return;
    const u64 block = blockIdx.x + gridDim.x * (blockIdx.y + (u64)gridDim.y * blockIdx.z);
    ring[2 + 2 * at] = px_now_ns();
    ring[3 + 2 * at] = block << 32 | number;
}
#else
PX_DI void px_stamp(u32) {}
#endif

// Word of a pad that `sender` writes and the pad's owner reads.
PX_DI u64 px_word(u64 pad, u32 slot, int sender) { return pad + 4ull * (slot * PX_MAX_WORLD + sender); }

PX_DI void px_until(u64 at, u32 value, u32 timeout_ms) {
    if ((int)(px_load_acquire(at) - value) >= 0) return;
    const u64 start = px_now_ns();
    while ((int)(px_load_acquire(at) - value) < 0)
        if (px_now_ns() - start > 1000000ull * timeout_ms) __trap();
}

// One thread calls these. What it (and, after __syncthreads, its block) wrote before px_signal is visible to the peer's thread after
// px_wait, and after another __syncthreads to that block.
PX_DI void px_signal(const Px& px, int peer, u32 slot, u32 value) {
    px_store_release(px_word(px.sig[peer], slot, px.rank), value);
}
PX_DI void px_wait(const Px& px, int peer, u32 slot, u32 value) {
    px_until(px_word(px.sig[px.rank], slot, peer), value, PX_TIMEOUT_MS);
}
// The whole block calls these, with at least `world` threads; the same block of every member meets. `epoch` must grow from use to
// use of the slot: pass symm.next_epoch(), one slot per barrier and block.
PX_DI int px_thread() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
// Says that this block has come so far; does not wait for anybody.
PX_DI void px_arrive(const Px& px, u32 slot, u32 epoch) {
    __syncthreads();
    const int peer = px_thread();
    if (peer < px.world && peer != px.rank) px_store_release(px_word(px.sig[peer], slot, px.rank), epoch);
}
// Waits until the same block of every member has arrived: what they wrote before is there.
PX_DI void px_await(const Px& px, u32 slot, u32 epoch, u32 timeout_ms = PX_TIMEOUT_MS) {
    const int peer = px_thread();
    if (peer < px.world && peer != px.rank) px_until(px_word(px.sig[px.rank], slot, peer), epoch, timeout_ms);
    __syncthreads();
}
PX_DI void px_barrier(const Px& px, u32 slot, u32 epoch, u32 timeout_ms = PX_TIMEOUT_MS) {
    px_arrive(px, slot, epoch);
    px_await(px, slot, epoch, timeout_ms);
}
// Meetings that count themselves: the number of a block's next one lies in device memory, in the word of its own pad that no peer
// writes, so nothing comes from the host, and a launch may be queued or captured ahead of time. A slot belongs to one block number, all
// members launch the same blocks in the same order, and a slot used here is not used with epochs of the host.
//     const u32 turn = px_turn(px, blockIdx.x);   // first thing: 1, 2, 3... from launch to launch
//     px_enter(px, blockIdx.x, turn);             // then the block may write into buffers of two launches ago
//     ...                                         // or px_meet at the end, where everybody waits for everybody
PX_DI u32 px_load_volatile(u64 at) {
    u32 value;
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
PX_DI u32 px_turn(const Px& px, u32 slot) { return px_load_volatile(px_word(px.sig[px.rank], slot, px.rank)) + 1; }
// The whole block: says that it has come to `turn` in `slot`, to its peers and to its own next launch.
PX_DI void px_reach(const Px& px, u32 slot, u32 turn) {
    __syncthreads();
    const int peer = px_thread();
    if (peer < px.world) px_store_release(px_word(px.sig[peer], slot, px.rank), turn);
}
// The whole block: everybody's launch before this one has ended. So what peers gave out two launches ago has been read, and may be
// written again: what takes turns in two buffers needs nothing else.
PX_DI void px_enter(const Px& px, u32 slot, u32 turn) {
    px_reach(px, slot, turn);
    px_await(px, slot, turn - 1);
}
// The whole block: the same block of every member has come here, and what they wrote before is there.
PX_DI void px_meet(const Px& px, u32 slot, u32 turn) {
    px_reach(px, slot, turn);
    px_await(px, slot, turn);
}
// The whole block: true in the last of this launch's `blocks` blocks to come here, and what the others wrote before is there then. done:
// a word that is 0 at first; it is 0 again afterwards.
PX_DI bool px_last_block(u32* done, u32 blocks) {
    __shared__ u32 last;
    __threadfence();
    __syncthreads();
    if (px_thread() == 0) {
        last = atomicAdd(done, 1u) == blocks - 1;
        if (last) *done = 0;
    }
    __syncthreads();
    if (last) __threadfence();
    return last;
}
// All blocks of this GPU meet; launch with .cooperative. `counter` starts at 0 and is never reset: pass turn = 1, 2, 3...
PX_DI void px_grid_barrier(u32* counter, u32 turn, u32 timeout_ms = PX_TIMEOUT_MS) {
    __syncthreads();
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
        __threadfence();
        atomicAdd(counter, 1u);
        px_until((u64)counter, turn * gridDim.x * gridDim.y * gridDim.z, timeout_ms);
    }
    __syncthreads();
}

// --- 16 bytes at a time ------------------------------------------------------------------------------------------------------
// Addresses must be divisible by 16. Plain loads, not the read-only path: peers change this memory while the kernel runs.
PX_DI uint4 px_ld16(const void* at) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}
PX_DI void px_st16(void* at, uint4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
// The 16 bytes of an array of n elements that begin at element `first`; zeros beyond its end. Where they do not lie on 16 bytes they
// are read one by one.
template <class T> PX_DI uint4 px_ld_part(const T* from, i64 first, i64 n) {
    const int each = 16 / sizeof(T);
    if (first + each <= n && (((u64)from + first * sizeof(T)) & 15) == 0) return px_ld16(from + first);
    u32 word[4] = {0, 0, 0, 0};
    #pragma unroll
    for (int k = 0; k < each; ++k) {
        if (first + k >= n) break;
        u32 bits = 0;
        if (sizeof(T) == 4) bits = *(const volatile u32*)(from + first + k);
        else bits = (u32) * (const volatile u16*)(from + first + k) << 16 * (k % 2);
        word[k * sizeof(T) / 4] |= bits;
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}
// The same way back: nothing is written beyond the array's end.
template <class T> PX_DI void px_st_part(T* to, i64 first, i64 n, uint4 value) {
    const int each = 16 / sizeof(T);
    if (first + each <= n && (((u64)to + first * sizeof(T)) & 15) == 0) {
        px_st16(to + first, value);
        return;
    }
    const u32 word[4] = {value.x, value.y, value.z, value.w};
    #pragma unroll
    for (int k = 0; k < each; ++k) {
        if (first + k >= n) break;
        const u32 bits = word[k * sizeof(T) / 4];
        if (sizeof(T) == 4) *(volatile u32*)(to + first + k) = bits;
        else *(volatile u16*)(to + first + k) = (u16)(bits >> 16 * (k % 2));
    }
}
// Sums in float of 16-byte words of T: float, bf16 or f16.
template <class T> struct PxSum {
    float sum[16 / sizeof(T)];
    __device__ __forceinline__ PxSum() {
        #pragma unroll
        for (int k = 0; k < 16 / sizeof(T); ++k) sum[k] = 0;
    }
    __device__ __forceinline__ void add(uint4 value) {
        const u32 word[4] = {value.x, value.y, value.z, value.w};
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            if constexpr (sizeof(T) == 4) {
                sum[k] += __uint_as_float(word[k]);
            } else {
                sum[2 * k] += to_float(T{(u16)word[k]});
                sum[2 * k + 1] += to_float(T{(u16)(word[k] >> 16)});
            }
        }
    }
    __device__ __forceinline__ uint4 rounded() const {
        u32 word[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            if constexpr (sizeof(T) == 4) {
                word[k] = __float_as_uint(sum[k]);
            } else {
                word[k] = from_float<T>(sum[2 * k]).bits | (u32)from_float<T>(sum[2 * k + 1]).bits << 16;
            }
        }
        return make_uint4(word[0], word[1], word[2], word[3]);
    }
};
// This thread's part of moving n elements of two or four bytes: the 16-byte words first, first + step, ... Four loads are in flight
// before the first store. Any alignment, but both sides must lie on 16 bytes to be moved 16 bytes at a time.
template <class T> PX_DI void px_move(T* to, const T* from, i64 n, i64 first, i64 step) {
    const int each = 16 / sizeof(T);
    for (i64 i = first; i * each < n; i += 4 * step) {
        uint4 part[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) part[k] = px_ld_part(from, each * (i + k * step), n);
        #pragma unroll
        for (int k = 0; k < 4; ++k) px_st_part(to, each * (i + k * step), n, part[k]);
    }
}
// The 16 / sizeof(T) elements of a word, in float, and back.
template <class T> PX_DI void px_unpack(uint4 value, float* to) {
    const u32 word[4] = {value.x, value.y, value.z, value.w};
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
        if constexpr (sizeof(T) == 4) {
            to[k] = __uint_as_float(word[k]);
        } else {
            to[2 * k] = to_float(T{(u16)word[k]});
            to[2 * k + 1] = to_float(T{(u16)(word[k] >> 16)});
        }
    }
}
template <class T> PX_DI uint4 px_pack(const float* from) {
    u32 word[4];
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
        if constexpr (sizeof(T) == 4) word[k] = __float_as_uint(from[k]);
        else word[k] = from_float<T>(from[2 * k]).bits | (u32)from_float<T>(from[2 * k + 1]).bits << 16;
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}
// The number at a place of a list: of `few` where it fits, else of `many` (sandbox.kit.tables makes both).
PX_DI i64 px_number(const PxNumbers& few, const i64* many, int place) { return many ? many[place] : few.at[place]; }
// The sum over the 32 lanes of a warp, in every lane; all lanes call it.
PX_DI float px_warp_sum(float value) {
    #pragma unroll
    for (int away = 16; away > 0; away /= 2) value += __shfl_xor_sync(0xffffffffu, value, away);
    return value;
}
// The largest of some values, and the sum of their exponentials relative to it; of none it is below every finite value, so that no
// difference is of infinities. px_mass: of n values of a row this thread's, the 16-byte words first, first + step, ...
struct PxMass { float peak, sum; };
PX_DI PxMass px_no_mass() { return {-3e38f, 0}; }
PX_DI PxMass px_joined(PxMass a, PxMass b) {
    const float peak = fmaxf(a.peak, b.peak);
    return {peak, a.sum * expf(a.peak - peak) + b.sum * expf(b.peak - peak)};
}
template <class T> PX_DI PxMass px_mass(const T* from, i64 n, i64 first, i64 step) {
    const int each = 16 / sizeof(T);
    PxMass own = px_no_mass();
    for (i64 i = first; i * each < n; i += 4 * step) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first comparison
        for (int k = 0; k < 4; ++k) part[k] = px_ld_part(from, each * (i + k * step), n);
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (each * (i + k * step) >= n) break;
            float value[8], peak = own.peak;
            px_unpack<T>(part[k], value);
            #pragma unroll
            for (int e = 0; e < each; ++e) {
                if (each * (i + k * step) + e >= n) value[e] = -px_infinity();
                peak = fmaxf(peak, value[e]);
            }
            own.sum *= expf(own.peak - peak);
            own.peak = peak;
            #pragma unroll
            for (int e = 0; e < each; ++e) own.sum += expf(value[e] - peak);
        }
    }
    return own;
}
// Of the 32 lanes of a warp together, in every lane; all lanes call it.
PX_DI PxMass px_warp_mass(PxMass own) {
    #pragma unroll
    for (int away = 16; away > 0; away /= 2) {
        const PxMass other = {__shfl_xor_sync(0xffffffffu, own.peak, away), __shfl_xor_sync(0xffffffffu, own.sum, away)};
        own = px_joined(own, other);
    }
    return own;
}
// Of a whole block of whole warps together, in every thread; all threads call it.
PX_DI PxMass px_block_mass(PxMass own) {
    __shared__ PxMass warps[32];
    own = px_warp_mass(own);
    __syncthreads();  // what a call before left there has been read
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = own;
    __syncthreads();
    own = warps[0];
    for (int w = 1; w < blockDim.x / 32; ++w) own = px_joined(own, warps[w]);
    return own;
}
// One product of a warp's tensor core: sum += a * b with a 16 x 16, b 16 x 8 of bf16 or f16, sum 16 x 8. With g = lane / 4 and
// q = lane % 4 a lane has sum {g 2q, g 2q+1, g+8 2q, g+8 2q+1}; a0, a1: rows g and g+8 at 2q, 2q+1, a2, a3: the same at 2q+8, 2q+9;
// b0, b1: column g at 2q, 2q+1 and at 2q+8, 2q+9. All lanes call it.
template <class T> PX_DI void px_mma(float* sum, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1);
template <> __device__ __forceinline__ void px_mma<bf16>(float* sum, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <> __device__ __forceinline__ void px_mma<f16>(float* sum, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Copies with `threads` threads, of which this is number `thread`. Any alignment and size; 16-byte words where both sides allow.
PX_DI void px_copy(void* to, const void* from, u64 bytes, u64 thread, u64 threads) {
    u64 done = 0;
    if ((((u64)to | (u64)from) & 15) == 0) {
        for (u64 i = thread; i < bytes / 16; i += threads) px_st16((char*)to + 16 * i, px_ld16((const char*)from + 16 * i));
        done = bytes & ~15ull;
    }
    for (u64 i = done + thread; i < bytes; i += threads) ((char*)to)[i] = ((const volatile char*)from)[i];
}

// --- low-latency words: data and flag in one store, so no barrier is needed to know that the data is there -------------------
// A word is 8 bytes (4 of data) or 16 (8 of data). The flag must differ from what the word held: pass an epoch.
PX_DI void px_st_ll(void* at, u32 data, u32 flag) {
    asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(data), "r"(flag) : "memory");
}
PX_DI u32 px_ld_ll(const void* at, u32 flag, u32 timeout_ms = PX_TIMEOUT_MS) {
    u32 data, seen;
    u64 start = 0;
    for (;;) {
        asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(data), "=r"(seen) : "l"(at) : "memory");
        if (seen == flag) return data;
        if (start == 0) start = px_now_ns();
        else if (px_now_ns() - start > 1000000ull * timeout_ms) __trap();
    }
}
// Two data words with a flag each: the two halves may arrive apart.
PX_DI void px_st_ll16(void* at, uint2 data, u32 flag) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(at), "r"(data.x), "r"(flag), "r"(data.y) : "memory");
}
PX_DI uint2 px_ld_ll16(const void* at, u32 flag, u32 timeout_ms = PX_TIMEOUT_MS) {
    uint2 data;
    u32 first, second;
    u64 start = 0;
    for (;;) {
        asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(data.x), "=r"(first), "=r"(data.y), "=r"(second) : "l"(at) : "memory");
        if (first == flag && second == flag) return data;
        if (start == 0) start = px_now_ns();
        else if (px_now_ns() - start > 1000000ull * timeout_ms) __trap();
    }
}
// One warp: gives 8 bytes, the same in all lanes, to every member, and gets theirs: those of member r in lane r, zeros in the lanes
// beyond. boxes: [2 (turns)][W (senders)] words of 16 bytes, symmetric, used by this slot alone; turn: px_turn of the slot, which
// px_reach ends. A rank that sends turn t+2 has everybody's words of turn t+1, so everybody has read those of turn t.
PX_DI uint2 px_swap(const Px& px, uint4* boxes, uint2 mine, u32 turn) {
    uint4* box = boxes + (turn & 1) * px.world;
    const int lane = px_thread() % 32;
    const bool is_peer = lane < px.world && lane != px.rank;
    if (is_peer) px_st_ll16(px_at(px, lane, box) + px.rank, mine, turn);
    if (is_peer) return px_ld_ll16(box + lane, turn);
    return lane == px.rank ? mine : make_uint2(0, 0);
}

// --- TMA: one thread moves a block of memory between shared memory and any GPU's memory --------------------------------------
// Addresses and sizes are multiples of 16. Loads finish on an mbarrier (8 bytes of shared memory), stores by groups.
PX_DI u32 px_shared(const void* at) { return (u32)__cvta_generic_to_shared(at); }

PX_DI void px_mbarrier_init(u64* bar, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(px_shared(bar)), "r"(arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // visible to the copy engine of the SM
}
PX_DI void px_mbarrier_expect(u64* bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(px_shared(bar)), "r"(bytes) : "memory");
}
// Waits for the phase with this parity: 0 first, then 1, 0, 1...
PX_DI void px_mbarrier_wait(u64* bar, u32 parity, u32 timeout_ms = PX_TIMEOUT_MS) {
    u32 done = 0;
    const u64 start = px_now_ns();
    for (;;) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(px_shared(bar)), "r"(parity) : "memory");
        if (done) return;
        if (px_now_ns() - start > 1000000ull * timeout_ms) __trap();
    }
}
PX_DI void px_bulk_load(void* shared, const void* global, u32 bytes, u64* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(px_shared(shared)),
                 "l"(global), "r"(bytes), "r"(px_shared(bar)) : "memory");
}
// Before a store: the threads' writes to shared memory must reach the copy engine. Call it in every writing thread, then
// __syncthreads, then let one thread store.
PX_DI void px_bulk_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
PX_DI void px_bulk_store(void* global, const void* shared, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(px_shared(shared)), "r"(bytes)
                 : "memory");
}
// Adds shared memory to (a peer's) global memory, element by element, in the memory's own unit; rounds after each addition.
PX_DI void px_bulk_add(float* global, const float* shared, u32 bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global),
                 "r"(px_shared(shared)), "r"(bytes) : "memory");
}
PX_DI void px_bulk_add(bf16* global, const bf16* shared, u32 bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%0], [%1], %2;" ::"l"(global),
                 "r"(px_shared(shared)), "r"(bytes) : "memory");
}
PX_DI void px_bulk_add(f16* global, const f16* shared, u32 bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%0], [%1], %2;" ::"l"(global),
                 "r"(px_shared(shared)), "r"(bytes) : "memory");
}
PX_DI void px_bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until at most N groups are open: `read` when shared memory may be written again, `done` when the data has arrived.
template <int N> PX_DI void px_bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
template <int N> PX_DI void px_bulk_wait_done() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }
