// Runs CUDA texts of the kit on CPU ranks, for tests: a block is an OS thread, its threads are contexts that take turns. It finds wrong
// indices, missing barriers and deadlocks; what it cannot find are missing fences, since the CPU orders stores by itself.
#pragma once
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define __align__(n) __attribute__((aligned(n)))
struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
struct __align__(16) float4 { float x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
template <class A, class B> static inline auto min(A a, B b) { return a < b ? a : b; }
template <class A, class B> static inline auto max(A a, B b) { return a > b ? a : b; }

struct Fiber {
    ucontext_t context;
    dim3 at;
    bool ended = false;
};
struct Block {
    ucontext_t scheduler;
    std::vector<Fiber> fibers;
    unsigned alive = 0, arrived = 0, round = 0, counted = 0;
    std::vector<unsigned> warp_alive, warp_arrived, warp_round;
    std::vector<unsigned long long> exchanged;
    std::function<void()>* work = nullptr;
};
static thread_local Block* emu_block;
static thread_local Fiber* emu_fiber;
static thread_local dim3 blockIdx, blockDim, gridDim;
#define threadIdx (emu_fiber->at)

static __attribute__((noinline)) void emu_yield() { swapcontext(&emu_fiber->context, &emu_block->scheduler); }
static void __trap() { fprintf(stderr, "emulated kernel trapped\n"); abort(); }
static void __syncthreads() {
    Block* block = emu_block;
    const unsigned round = block->round;
    if (++block->arrived == block->alive) { block->arrived = 0; ++block->round; return; }
    while (block->round == round) emu_yield();
}
#define __barrier_sync_count(number, threads) __syncthreads()  // each part of the block must wait equally often
static int __syncthreads_count(int value) {
    emu_block->counted += value != 0;
    __syncthreads();
    const int got = emu_block->counted;
    __syncthreads();
    emu_block->counted = 0;
    __syncthreads();
    return got;
}
static unsigned emu_lane() { return threadIdx.x % 32; }
static void __syncwarp(unsigned = ~0u) {
    Block* block = emu_block;
    const unsigned warp = threadIdx.x / 32, round = block->warp_round[warp];
    if (++block->warp_arrived[warp] == block->warp_alive[warp]) { block->warp_arrived[warp] = 0; ++block->warp_round[warp]; return; }
    while (block->warp_round[warp] == round) emu_yield();
}
template <class T> static T emu_from(T value, unsigned lane) {
    Block* block = emu_block;
    memcpy(&block->exchanged[threadIdx.x], &value, sizeof value);
    __syncwarp();
    T got;
    memcpy(&got, &block->exchanged[threadIdx.x / 32 * 32 + lane % 32], sizeof got);
    __syncwarp();
    return got;
}
template <class T> static T __shfl_sync(unsigned, T value, unsigned lane) { return emu_from(value, lane); }
template <class T> static T __shfl_xor_sync(unsigned, T value, unsigned mask) { return emu_from(value, emu_lane() ^ mask); }
template <class T> static T __reduce_max_sync(unsigned mask, T value) {
    for (unsigned away = 16; away; away /= 2) value = max(value, __shfl_xor_sync(mask, value, away));
    return value;
}
static unsigned __ballot_sync(unsigned, bool value) {
    Block* block = emu_block;
    block->exchanged[threadIdx.x] = value;
    __syncwarp();
    unsigned found = 0;
    for (unsigned lane = 0; lane < 32; ++lane) found |= (unsigned)block->exchanged[threadIdx.x / 32 * 32 + lane] << lane;
    __syncwarp();
    return found;
}
static bool __any_sync(unsigned mask, bool value) { return __ballot_sync(mask, value) != 0; }
static int __popc(unsigned value) { return __builtin_popcount(value); }
static void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
static void __threadfence_system() { __threadfence(); }
static unsigned atomicAdd(unsigned* at, unsigned value) { return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); }
static unsigned atomicMin(unsigned* at, unsigned value) {
    unsigned old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (value < old && !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
    return old;
}
static int atomicAdd(int* at, int value) { return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); }
static float atomicAdd(float* at, float value) {
    float old, sum;
    __atomic_load(at, &old, __ATOMIC_SEQ_CST);
    do sum = old + value;
    while (!__atomic_compare_exchange(at, &old, &sum, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}
static float __uint_as_float(unsigned bits) { float value; memcpy(&value, &bits, 4); return value; }
static unsigned __float_as_uint(float value) { unsigned bits; memcpy(&bits, &value, 4); return bits; }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fdiv_rn(float a, float b) { return a / b; }
static float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static unsigned __byte_perm(unsigned low, unsigned high, unsigned places) {
    const unsigned long long bytes = (unsigned long long)high << 32 | low;
    unsigned found = 0;
    for (unsigned k = 0; k < 4; ++k) found |= (unsigned)(bytes >> 8 * (places >> 4 * k & 7) & 0xff) << 8 * k;
    return found;
}
static float rsqrtf(float value) { return 1 / sqrtf(value); }

static void emu_thread() { (*emu_block->work)(); emu_fiber->ended = true; emu_yield(); }
static void emu_one_block(std::function<void()>& work, unsigned threads) {
    const size_t stack = 64 << 10;
    char* stacks = (char*)mmap(nullptr, stack * threads, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    Block block;
    emu_block = &block;
    block.work = &work;
    block.fibers.resize(threads);
    block.exchanged.resize((threads + 31) / 32 * 32);
    block.alive = threads;
    block.warp_alive.assign((threads + 31) / 32, 0);
    block.warp_arrived.assign((threads + 31) / 32, 0);
    block.warp_round.assign((threads + 31) / 32, 0);
    for (unsigned t = 0; t < threads; ++t) {
        Fiber& fiber = block.fibers[t];
        fiber.at.x = t; fiber.at.y = fiber.at.z = 0;
        ++block.warp_alive[t / 32];
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = stacks + stack * t;
        fiber.context.uc_stack.ss_size = stack;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, emu_thread, 0);
    }
    unsigned left = threads;
    while (left) {
        for (Fiber& fiber : block.fibers) {
            if (fiber.ended) continue;
            emu_fiber = &fiber;
            swapcontext(&block.scheduler, &fiber.context);
            if (fiber.ended) {
                --left;
                if (--block.alive && block.arrived == block.alive) { block.arrived = 0; ++block.round; }
                const unsigned warp = fiber.at.x / 32;
                if (--block.warp_alive[warp] && block.warp_arrived[warp] == block.warp_alive[warp]) {
                    block.warp_arrived[warp] = 0; ++block.warp_round[warp];
                }
            }
        }
        sched_yield();
    }
    munmap(stacks, stack * threads);
}
static void emu_launch(const unsigned* grid, unsigned threads, std::function<void()> work) {
    std::vector<std::thread> blocks;
    for (unsigned y = 0; y < grid[1]; ++y)
        for (unsigned x = 0; x < grid[0]; ++x)
            blocks.emplace_back([=, &work] {
                blockIdx = {x, y, 0}; blockDim = {threads, 1, 1}; gridDim = {grid[0], grid[1], 1};
                emu_one_block(work, threads);
            });
    for (auto& block : blocks) block.join();
}
