// CUDA C++ for GPU ranks: the peers' memory, signals and barriers over NVLink, 16-byte and low-latency words, TMA bulk copies.
// Included before every source that sandbox.kit.cuda compiles. Includes no header, so NVRTC compiles it in a few milliseconds.
// Written for sm_90a and later. All functions have run on H200.
//
// A member or peer is a rank of the team that `px` describes. Waits for signals, words and mbarriers trap after PX_TIMEOUT_MS, or
// after a `timeout_ms` that is passed.
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
#ifdef __CUDACC_RTC__  // the same types as libcu++ has under NVRTC, and as the system has under nvcc
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
typedef long int64_t;
typedef unsigned long uint64_t;
#endif

#define PX_MAX_WORLD 8
#define PX_SLOTS 1008  // a kernel may use slots 0..1007; use blockIdx.x for barriers of blocks with the same number
#ifndef PX_TIMEOUT_MS
#define PX_TIMEOUT_MS 2000  // longest wait before the kernel traps: a lost signal is an error, not a hung GPU
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
template <> __device__ __forceinline__ f16 from_float<f16>(float value) {
    f16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}
// Rounds two floats to bf16 and packs them in a word; `low` comes first in memory.
PX_DI u32 bf16x2_from(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
// Rounds two floats to E4M3 codes of 8 bits, half to even, to at most 448; NaN stays NaN. `low` comes first in memory.
PX_DI u16 e4m3x2_from(float low, float high) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}
// Returns two codes' values, exactly, as two f16.
PX_DI u32 f16x2_from_e4m3(u16 pair) {
    u32 values;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(values) : "h"(pair));
    return values;
}
// For two numbers in one instruction of full speed; that for one is slower.
template <> __device__ __forceinline__ bf16 from_float<bf16>(float value) { return {(u16)bf16x2_from(value, 0)}; }
template <class T> PX_DI u32 px_pair(float low, float high) {
    return from_float<T>(low).bits | (u32)from_float<T>(high).bits << 16;
}
template <> __device__ __forceinline__ u32 px_pair<bf16>(float low, float high) { return bf16x2_from(low, high); }
PX_DI float bf16x2_low(u32 pair) { return __uint_as_float(pair << 16); }
PX_DI float bf16x2_high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// --- peers -----------------------------------------------------------------------------------------------------------------
struct Px {
    u64 buf[PX_MAX_WORLD];  // each member's heap, as mapped on this GPU
    u64 sig[PX_MAX_WORLD];  // each member's signal pad
    int rank, world;        // this rank's index in the team, and the team's size; symm.sub(...).px is a team of some ranks
};

// Up to 64 numbers by value. For a kernel parameter of this type, pass a list of ints; missing numbers are 0.
struct PxNumbers { i64 at[64]; };

// Returns the same place in a peer's heap: `mine` points into this rank's heap (symm.empty, symm.stage, symm.out).
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

// One thread of a block calls this: records the time at which the block reaches the place `number`, which you choose.
// `pkb-arena profile` shows the time between two stamps of a block. Outside a profile px_stamp does nothing.
#ifdef PX_STAMPS
extern "C" __device__ u64 px_stamp_ring;
// The ring's address, or 0. The ring holds the number of stamps, its capacity (0: recording is off), then of each stamp its time
// in ns and `block << 32 | number`.
__device__ u64 px_stamp_ring = 0;
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

// Returns the address of the word of a slot that `sender` writes and the pad's owner reads.
PX_DI u64 px_word(u64 pad, u32 slot, int sender) { return pad + 4ull * (slot * PX_MAX_WORLD + sender); }

// Waits until the word at `at` is `value` or later, by signed difference, because epochs wrap around. Traps after timeout_ms.
PX_DI void px_until(u64 at, u32 value, u32 timeout_ms) {
    if ((int)(px_load_acquire(at) - value) >= 0) return;
    const u64 start = px_now_ns();
    while ((int)(px_load_acquire(at) - value) < 0)
        if (px_now_ns() - start > 1000000ull * timeout_ms) __trap();
}

// One thread calls each of these. px_signal stores `value` in this rank's word of the slot at the peer. px_wait waits until the
// peer has signalled `value` or later. The values of a slot must only grow. What the signalling thread (and, before a
// __syncthreads, its block) wrote before px_signal is visible to the waiting thread after px_wait, and after another
// __syncthreads to that thread's block.
PX_DI void px_signal(const Px& px, int peer, u32 slot, u32 value) {
    px_store_release(px_word(px.sig[peer], slot, px.rank), value);
}
PX_DI void px_wait(const Px& px, int peer, u32 slot, u32 value) {
    px_until(px_word(px.sig[px.rank], slot, peer), value, PX_TIMEOUT_MS);
}
// The number of this thread in its block.
PX_DI int px_thread() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
// Barriers of the same block of every member. The whole block calls these functions, with at least `world` threads. Use a slot
// for one block and one barrier of a call. `epoch` must grow with each use of the slot: pass symm.next_epoch().
// px_arrive: signals to all peers that this block has arrived. Does not wait.
PX_DI void px_arrive(const Px& px, u32 slot, u32 epoch) {
    __syncthreads();
    const int peer = px_thread();
    if (peer < px.world && peer != px.rank) px_store_release(px_word(px.sig[peer], slot, px.rank), epoch);
}
// px_await: waits until the same block of every peer has arrived; what they wrote before px_arrive is then visible to this block.
PX_DI void px_await(const Px& px, u32 slot, u32 epoch, u32 timeout_ms = PX_TIMEOUT_MS) {
    const int peer = px_thread();
    if (peer < px.world && peer != px.rank) px_until(px_word(px.sig[px.rank], slot, peer), epoch, timeout_ms);
    __syncthreads();
}
// px_barrier: px_arrive, then px_await.
PX_DI void px_barrier(const Px& px, u32 slot, u32 epoch, u32 timeout_ms = PX_TIMEOUT_MS) {
    px_arrive(px, slot, epoch);
    px_await(px, slot, epoch, timeout_ms);
}
// Barriers that count their own turns. The number of a slot's last turn is stored in this rank's own pad, in the word that no
// peer writes. No epoch comes from the host, so launches may be queued, or captured in a CUDA graph, ahead of time. Rules: a slot
// belongs to one block number; all members launch the same blocks in the same order; a slot with turns is never used with epochs.
//     const u32 turn = px_turn(px, blockIdx.x);   // first: 1, 2, 3, ... from launch to launch
//     px_enter(px, blockIdx.x, turn);             // after this the block may write to buffers of two launches ago
//     ...                                         // or px_turn_barrier at the end: a barrier of all members
PX_DI u32 px_load_volatile(u64 at) {
    u32 value;
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
// Any thread calls this, before its block calls px_enter, px_turn_barrier or px_reach: returns the number of the slot's next turn.
PX_DI u32 px_turn(const Px& px, u32 slot) { return px_load_volatile(px_word(px.sig[px.rank], slot, px.rank)) + 1; }
// The whole block calls this: signals to all peers that it has reached `turn`, and stores the turn for its own next launch. Does
// not wait.
PX_DI void px_reach(const Px& px, u32 slot, u32 turn) {
    __syncthreads();
    const int peer = px_thread();
    if (peer < px.world) px_store_release(px_word(px.sig[peer], slot, px.rank), turn);
}
// The whole block calls this at its start: calls px_reach, then waits until the same block of every peer has reached turn - 1.
// With one turn a launch, launch turn - 1 has then begun on every peer, so launch turn - 2 has ended everywhere: its buffers have
// been read and may be written again. With two buffers used in turn, no other barrier is needed before writing.
PX_DI void px_enter(const Px& px, u32 slot, u32 turn) {
    px_reach(px, slot, turn);
    px_await(px, slot, turn - 1);
}
// The whole block calls this: a barrier of the same block of every member. What they wrote before is visible afterwards.
PX_DI void px_turn_barrier(const Px& px, u32 slot, u32 turn) {
    px_reach(px, slot, turn);
    px_await(px, slot, turn);
}
// The whole block calls this; each of the `blocks` blocks that share `done` does so once in a launch. Returns true in the last of
// them; what the others wrote before is visible to it. done: a word of this GPU's memory, 0 before and 0 afterwards.
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
// The whole block calls this: a barrier of all blocks of this launch, on this GPU. Launch with .cooperative. What a block wrote
// before is visible to all blocks afterwards. `counter` starts at 0 and is never reset: pass turn = 1, 2, 3, ... and go on
// counting in the next launch that uses it, which must have as many blocks.
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
// Addresses must be multiples of 16. px_ld16 does not use the read-only cache, because peers may change the memory while the
// kernel runs. These are plain accesses, without memory ordering: use signals or barriers.
PX_DI uint4 px_ld16(const void* at) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}
PX_DI void px_st16(void* at, uint4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
// Loads the 16 bytes from element `first` on of an array of n elements of two or four bytes; zeros beyond its end. Reads the
// elements one by one if the address is not a multiple of 16, or if the array ends before.
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
// Stores 16 bytes in the same way: writes nothing beyond the array's end.
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
// Sums of 16-byte words, element by element, in float. T: float, bf16 or f16. `rounded` returns the sums as a word of T.
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
                word[k] = px_pair<T>(sum[2 * k], sum[2 * k + 1]);
            }
        }
        return make_uint4(word[0], word[1], word[2], word[3]);
    }
};
// Copies this thread's part of n elements of two or four bytes: the 16-byte words first, first + step, ... Four loads are in
// flight before the first store. Any alignment works, but a side that is not 16-byte aligned is accessed element by element.
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
// px_unpack converts the 16 / sizeof(T) elements of a word to float; px_pack rounds them to T and packs them into a word.
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
        else word[k] = px_pair<T>(from[2 * k], from[2 * k + 1]);
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}
// Returns number `place` of a list: from `many`, or from `few` if `many` is 0. sandbox.kit.tables makes both.
PX_DI i64 px_number(const PxNumbers& few, const i64* many, int place) { return many ? many[place] : few.at[place]; }
// All lanes of a warp call this: returns the sum over the 32 lanes, in every lane.
PX_DI float px_warp_sum(float value) {
    #pragma unroll
    for (int away = 16; away > 0; away /= 2) value += __shfl_xor_sync(0xffffffffu, value, away);
    return value;
}
// Returns e^x in two instructions instead of expf's eight; the relative error is below 3e-7 + |x| * 1e-7; 0 if x < -87.
PX_DI float px_exp(float x) {
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(x * 1.4426950408889634f));
    return x;
}
// A mass: the largest of some values (`peak`), and the sum of exp(value - peak), as softmax needs. Without values the peak is
// -3e38: it is finite, so that infinities are never subtracted from each other.
struct PxMass { float peak, sum; };
PX_DI PxMass px_no_mass() { return {-3e38f, 0}; }
// Returns the mass of the values of a and b together.
PX_DI PxMass px_joined(PxMass a, PxMass b) {
    const float peak = fmaxf(a.peak, b.peak);
    return {peak, a.sum * expf(a.peak - peak) + b.sum * expf(b.peak - peak)};
}
// Returns the mass of this thread's part of a row of n values: the 16-byte words first, first + step, ...
template <class T> PX_DI PxMass px_mass(const T* from, i64 n, i64 first, i64 step) {
    const int each = 16 / sizeof(T);
    PxMass own = px_no_mass();
    for (i64 i = first; i * each < n; i += 4 * step) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first comparison
        for (int k = 0; k < 4; ++k) part[k] = px_ld_part(from, each * (i + k * step), n);
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            const i64 left = n - each * (i + k * step);
            if (left <= 0) break;
            float value[8], peak = own.peak;
            px_unpack<T>(part[k], value);
            #pragma unroll  // one 64-bit comparison per word: one per element would take longer than the loads
            for (int e = 0; left < each && e < each; ++e)
                if (e >= left) value[e] = -px_infinity();
            #pragma unroll
            for (int e = 0; e < each; ++e) peak = fmaxf(peak, value[e]);
            own.sum *= expf(own.peak - peak);
            own.peak = peak;
            #pragma unroll
            for (int e = 0; e < each; ++e) own.sum += px_exp(value[e] - peak);
        }
    }
    return own;
}
// All lanes of a warp call this: returns the mass of the values of all 32 lanes, in every lane.
PX_DI PxMass px_warp_mass(PxMass own) {
    #pragma unroll
    for (int away = 16; away > 0; away /= 2) {
        const PxMass other = {__shfl_xor_sync(0xffffffffu, own.peak, away), __shfl_xor_sync(0xffffffffu, own.sum, away)};
        own = px_joined(own, other);
    }
    return own;
}
// The whole block calls this, one-dimensional and of whole warps: returns the mass of the values of all threads, in every thread.
PX_DI PxMass px_block_mass(PxMass own) {
    __shared__ PxMass warps[32];
    own = px_warp_mass(own);
    __syncthreads();  // all threads have read `warps` of an earlier call
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = own;
    __syncthreads();
    own = warps[0];
    for (int w = 1; w < blockDim.x / 32; ++w) own = px_joined(own, warps[w]);
    return own;
}
// All lanes of a warp call this: computes sum += a * b on a tensor core, with a [16 x 16] and b [16 x 8] of bf16 or f16, and sum
// [16 x 8] of float. With g = lane / 4 and q = lane % 4, a lane holds these elements [row, column], the first of a word low:
//     sum: [g, 2q], [g, 2q+1], [g+8, 2q], [g+8, 2q+1]     b0: [2q, g], [2q+1, g]     b1: [2q+8, g], [2q+9, g]
//     a0: [g, 2q], [g, 2q+1]     a1: the same of row g+8     a2: [g, 2q+8], [g, 2q+9]     a3: the same of row g+8
template <class T> PX_DI void px_mma(float* sum, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1);
template <> __device__ __forceinline__ void px_mma<bf16>(float* sum, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <> __device__ __forceinline__ void px_mma<f16>(float* sum, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Copies `bytes` bytes with `threads` threads that all call this; `thread` is the number of this one. Any alignment and size.
// Moves 16 bytes at a time if both addresses are multiples of 16.
PX_DI void px_copy(void* to, const void* from, u64 bytes, u64 thread, u64 threads) {
    u64 done = 0;
    if ((((u64)to | (u64)from) & 15) == 0) {
        for (u64 i = thread; i < bytes / 16; i += threads) px_st16((char*)to + 16 * i, px_ld16((const char*)from + 16 * i));
        done = bytes & ~15ull;
    }
    for (u64 i = done + thread; i < bytes; i += threads) ((char*)to)[i] = ((const volatile char*)from)[i];
}

// --- low-latency words: one store writes data and flag, so the reader needs no barrier ---------------------------------------
// A word has 8 bytes (4 of data) or 16 (8 of data), and its address is a multiple of its size. One thread calls these
// functions. A load waits until the word's flag equals `flag`, then returns the data. The flag of a store must differ from what
// the word held: pass an epoch or a turn. Write a word again only after its readers have read it. Words do not order other memory
// accesses.
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
// Two data words with a flag each, because the two halves may arrive at different times. px_ld_ll16 waits for both.
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
// All lanes of one warp call this, once a turn: sends `mine`, 8 bytes that are the same in all lanes, to every member. Returns
// the bytes of member r in lane r, and zeros in lanes from `world` on. boxes: [2 (turns)][W (senders)] words of 16 bytes,
// symmetric, for this slot alone. turn: px_turn of the slot; end the turn with px_reach. Two turns are enough: a rank that sends
// turn t+2 has received all words of turn t+1, so all ranks have read those of turn t.
PX_DI uint2 px_swap(const Px& px, uint4* boxes, uint2 mine, u32 turn) {
    uint4* box = boxes + (turn & 1) * px.world;
    const int lane = px_thread() % 32;
    const bool is_peer = lane < px.world && lane != px.rank;
    if (is_peer) px_st_ll16(px_at(px, lane, box) + px.rank, mine, turn);
    if (is_peer) return px_ld_ll16(box + lane, turn);
    return lane == px.rank ? mine : make_uint2(0, 0);
}

// --- TMA: one thread moves a block of memory between shared memory and any GPU's memory --------------------------------------
// Addresses and sizes must be multiples of 16. Loads complete on an mbarrier (8 bytes of shared memory), stores in groups. Loads:
// one thread calls px_mbarrier_init once, then per phase px_mbarrier_expect and px_bulk_load; readers call px_mbarrier_wait.
PX_DI u32 px_shared(const void* at) { return (u32)__cvta_generic_to_shared(at); }

// One thread calls this, then the block calls __syncthreads. A phase of `bar` completes after `arrivals` arrivals and all
// expected bytes.
PX_DI void px_mbarrier_init(u64* bar, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(px_shared(bar)), "r"(arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // visible to the copy engine of the SM
}
// One thread calls this: arrives, and adds `bytes` to the bytes that this phase waits for.
PX_DI void px_mbarrier_expect(u64* bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(px_shared(bar)), "r"(bytes) : "memory");
}
// Each reading thread calls this: waits until the phase with this parity has completed. Pass 0 first, then 1, 0, 1, ...
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
// One thread calls this: starts a copy from any GPU's memory to shared memory, and returns at once. `bar` counts the bytes.
PX_DI void px_bulk_load(void* shared, const void* global, u32 bytes, u64* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(px_shared(shared)),
                 "l"(global), "r"(bytes), "r"(px_shared(bar)) : "memory");
}
// Before a store: makes the calling thread's writes to shared memory visible to the copy engine. Call it in every thread that
// wrote, then __syncthreads, then let one thread store. That thread also commits and waits.
PX_DI void px_bulk_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
PX_DI void px_bulk_store(void* global, const void* shared, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(px_shared(shared)), "r"(bytes)
                 : "memory");
}
// The storing thread calls this: makes one group of its stores since its last commit.
PX_DI void px_bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Wait until at most the N latest groups of the calling thread are pending, without a time limit. After px_bulk_wait_read, the
// other groups have read their shared memory, which may be written again. After px_bulk_wait_done, their data has arrived.
template <int N> PX_DI void px_bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
template <int N> PX_DI void px_bulk_wait_done() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }
