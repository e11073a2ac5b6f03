// C++ for CPU ranks: the peers' memory, signals and barriers, and 16-bit floats. Included before every source that
// sandbox.kit.cpp compiles. Same names as px.cuh, so that a kernel's structure carries over to a GPU.
#pragma once
#include <linux/futex.h>
#include <math.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

typedef int32_t i32;
typedef int64_t i64;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define PX_MAX_WORLD 8
#define PX_EXPORT extern "C" __attribute__((visibility("default")))
#define PX_SLOTS 1008  // a kernel may use slots 0..1007
#ifndef PX_TIMEOUT_MS
#define PX_TIMEOUT_MS 10000
#endif

// --- 16-bit floats: storage types; compute in float ---------------------------------------------------------------------
struct bf16 { u16 bits; };
struct f16 { u16 bits; };

static inline float px_float_of(u32 bits) { float value; memcpy(&value, &bits, 4); return value; }
static inline u32 px_bits_of(float value) { u32 bits; memcpy(&bits, &value, 4); return bits; }

static inline float to_float(float value) { return value; }
static inline float to_float(double value) { return (float)value; }
static inline float to_float(bf16 value) { return px_float_of((u32)value.bits << 16); }
static inline float to_float(f16 value) {
    const u32 sign = (u32)(value.bits & 0x8000) << 16, rest = value.bits & 0x7fff;
    // The exponents' biases differ by 112. Multiplying by 2^112 converts subnormals correctly, too.
    const float magnitude = px_float_of(rest << 13) * 0x1p112f;
    return px_float_of(sign | (rest >= 0x7c00 ? 0x7f800000u | (rest & 0x3ff) << 13 : px_bits_of(magnitude)));
}

// Rounds to nearest even; NaN stays NaN.
template <class T> static inline T from_float(float value);
template <> inline float from_float<float>(float value) { return value; }
template <> inline double from_float<double>(float value) { return value; }
template <> inline bf16 from_float<bf16>(float value) {
    const u32 bits = px_bits_of(value);
    const u32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return bf16{(u16)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded)};
}
template <> inline f16 from_float<f16>(float value) {
    const u32 bits = px_bits_of(value), sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return f16{(u16)(sign | 0x7e00)};
    if (rest >= 0x477ff000) return f16{(u16)(sign | 0x7c00)};                          // rounds to infinity
    if (rest < 0x38800000)                                                            // subnormal: adding 0.5 rounds it
        return f16{(u16)(sign | (px_bits_of(px_float_of(rest) + 0.5f) - 0x3f000000u))};
    return f16{(u16)(sign | ((rest - 0x38000000 + 0xfff + ((rest >> 13) & 1)) >> 13))};
}

// --- peers -----------------------------------------------------------------------------------------------------------------
struct Px {
    u64 buf[PX_MAX_WORLD];  // each member's heap, as mapped in this process
    u64 sig[PX_MAX_WORLD];  // each member's signal pad
    int rank, world;        // this rank's index in the team, and the team's size; symm.sub(...).px is a team of some ranks
};

// Returns the same place in a peer's heap: `mine` points into this rank's heap (symm.empty, symm.stage, symm.out).
template <class T> static inline T* px_at(const Px& px, int peer, T* mine) {
    return (T*)(px.buf[peer] + ((u64)mine - px.buf[px.rank]));
}

// Barriers and waits throw PxTimeout, which becomes sandbox.kit.errors.BarrierTimeout in Python. missing: bit mask of members.
struct PxTimeout { u32 missing, slot, value; };
struct PxBadSlot { u32 slot; };

static inline u32 px_load_acquire(const u32* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static inline void px_store_release(u32* at, u32 value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }

// Returns the address of the word of a slot that `sender` writes and the pad's owner reads.
static inline u32* px_word(u64 pad, u32 slot, int sender) { return (u32*)(pad + 4ull * (slot * PX_MAX_WORLD + sender)); }

static inline u64 px_now_us() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)now.tv_sec * 1000000u + (u64)now.tv_nsec / 1000u;
}

// Waits of this process to come that sleep. Who yields to another program loses the core to the end of a tick of 4 ms, again and
// again; who sleeps is woken at once, because ranks have shorter time slices. After so many waits yields are tried again.
static u32 px_sleeping_waits = 0;
constexpr u32 PX_SLEEPING_WAITS = 4096, PX_LONG_YIELD_US = 500, PX_SPIN_US = 30, PX_YIELDS_US = 5000;

extern "C" long syscall(long, ...) noexcept;  // not by unistd.h, whose `read` would be a kernel's
static inline void px_futex(const u32* at, int operation, u32 value, const timespec* most) {
    syscall(SYS_futex, at, operation, value, most, nullptr, 0);
}

// Waits until the word is `value` or later, by signed difference, because epochs wrap around. Spins briefly, then yields, because
// there may be more ranks than cores. Where another program has the core it spins for 30 us instead. Then, or after 5 ms of yields,
// it sleeps until it is woken, at most 50 us between checks. Returns false after timeout_ms.
static inline bool px_reached(const u32* at, u32 value, u32 timeout_ms) {
    for (int spin = 0; spin < 64; ++spin) {
        if ((i32)(px_load_acquire(at) - value) >= 0) return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    const u64 start = px_now_us();
    if (px_sleeping_waits) --px_sleeping_waits;
    for (;;) {
        const u32 seen = px_load_acquire(at);
        if ((i32)(seen - value) >= 0) return true;
        const u64 waited = px_now_us() - start;
        if (waited > (u64)timeout_ms * 1000u) return false;
        if (waited > (px_sleeping_waits ? PX_SPIN_US : PX_YIELDS_US)) {
            const timespec most = {0, 50000};
            px_futex(at, FUTEX_WAIT, seen, &most);
        } else if (!px_sleeping_waits) {
            sched_yield();
            if (px_now_us() - start - waited > PX_LONG_YIELD_US) px_sleeping_waits = PX_SLEEPING_WAITS;
        }
    }
}

static inline void px_send(const Px& px, int peer, u32 slot, u32 value) {
    u32* const word = px_word(px.sig[peer], slot, px.rank);
    px_store_release(word, value);
    if (px_sleeping_waits) px_futex(word, FUTEX_WAKE, 1, nullptr);
}

// Signals to all peers, then waits for each up to timeout_ms, until one is missing. Returns a bit mask of the missing members.
static inline u32 px_try_barrier(const Px& px, u32 slot, u32 epoch, u32 timeout_ms) {
    for (int i = 1; i < px.world; ++i) px_send(px, (px.rank + i) % px.world, slot, epoch);
    u32 missing = 0;
    for (int peer = 0; peer < px.world; ++peer)
        if (peer != px.rank && !px_reached(px_word(px.sig[px.rank], slot, peer), epoch, missing ? 0 : timeout_ms))
            missing |= 1u << peer;
    return missing;
}

// With PX_TIMED, as in a profile, the waits of a call are noted: begin and end on the realtime clock, and their kind.
#ifdef PX_TIMED
constexpr u32 PX_MOST_WAITS = 4096;
struct PxTimedWait { u64 start, end; u32 barrier, slot; };
static PxTimedWait px_waits[PX_MOST_WAITS];
static u32 px_waits_made = 0;
static inline u64 px_realtime_ns() {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (u64)now.tv_sec * 1000000000u + (u64)now.tv_nsec;
}
struct PxTimed {
    u32 at;
    PxTimed(u32 barrier, u32 slot) : at(__atomic_fetch_add(&px_waits_made, 1u, __ATOMIC_RELAXED)) {
        if (at < PX_MOST_WAITS) px_waits[at] = {px_realtime_ns(), 0, barrier, slot};
    }
    ~PxTimed() { if (at < PX_MOST_WAITS) px_waits[at].end = px_realtime_ns(); }
};
#define PX_NOTE_WAIT(barrier, slot) const PxTimed px_timed{barrier, slot}
#else
#define PX_NOTE_WAIT(barrier, slot)
#endif

// What was written before px_signal is visible to the peer after its px_wait returns. The values of a slot must only grow.
static inline void px_signal(const Px& px, int peer, u32 slot, u32 value) {
    if (slot >= PX_SLOTS) throw PxBadSlot{slot};
    px_send(px, peer, slot, value);
}
static inline void px_wait(const Px& px, int peer, u32 slot, u32 value) {
    if (slot >= PX_SLOTS) throw PxBadSlot{slot};
    PX_NOTE_WAIT(0, slot);
    if (!px_reached(px_word(px.sig[px.rank], slot, peer), value, PX_TIMEOUT_MS)) throw PxTimeout{1u << peer, slot, value};
}
// A barrier of all members: what they wrote before is visible afterwards. `epoch` must grow with each use of the slot: pass
// symm.next_epoch(), and use one slot per barrier of a call.
static inline void px_barrier(const Px& px, u32 slot, u32 epoch) {
    if (slot >= PX_SLOTS) throw PxBadSlot{slot};
    PX_NOTE_WAIT(1, slot);
    const u32 missing = px_try_barrier(px, slot, epoch, PX_TIMEOUT_MS);
    if (missing) throw PxTimeout{missing, slot, epoch};
}
