"""Runs the kit's CUDA kernels on CPU ranks. The threads of a block are threads of the process; blocks run in sequence.

It tests indices, odd sizes, and the order of barriers between real processes with real peers' memory. It cannot test
the GPU's memory model or speed. Blocks may run in sequence because block b only waits for block b of the peers.
"""

import ctypes
import functools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

import sandbox.kit
from sandbox.kit import cuda, symm
from sandbox.kit.compilers import arguments, build, gcc, nvrtc
from sandbox.kit.compilers.arguments import converter
from sandbox.kit.shmem import link as nvshmem_link

THREADS = 8
"""Threads of a block, in place of the kernel's own number. Need not divide any size; at least the largest world."""

PRELUDE = r"""
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>
#include <math.h>
#include <sched.h>
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __shared__ static
struct Extent { unsigned x, y, z; };
static thread_local Extent threadIdx, blockIdx, blockDim, gridDim;
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
template <class A, class B> static inline long long min(A a, B b) { return (long long)a < (long long)b ? a : b; }
static inline float __uint_as_float(unsigned bits) { float value; memcpy(&value, &bits, 4); return value; }
static inline unsigned __float_as_uint(float value) { unsigned bits; memcpy(&bits, &value, 4); return bits; }
static void trap_at(int line) { fprintf(stderr, "trap in line %d of the emulated source\n", line); abort(); }
#define __trap() trap_at(__LINE__)
static inline void __threadfence() {}
static inline unsigned atomicAdd(unsigned* at, unsigned n) { return __atomic_fetch_add(at, n, __ATOMIC_ACQ_REL); }
static inline float __shfl_xor_sync(unsigned, float value, int) { abort(); return value; }  // warps are not emulated here
static inline unsigned __cvta_generic_to_shared(const void*) { return 0; }
struct BlockBarrier {
    std::mutex lock; std::condition_variable turn; unsigned here = 0, round = 0, all = 0;
    void wait() {
        std::unique_lock<std::mutex> held(lock);
        unsigned mine = round;
        if (++here == all) { here = 0; ++round; turn.notify_all(); return; }
        turn.wait(held, [&] { return round != mine; });
    }
};
static BlockBarrier block_barrier;
static inline void __syncthreads() { block_barrier.wait(); }
template <class Body> static void launch(unsigned grid, unsigned block, Body body) {
    block_barrier.all = block;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < block; ++t)
        threads.emplace_back([=] {
            threadIdx = {t, 0, 0}; blockDim = {block, 1, 1}; gridDim = {grid, 1, 1};
            for (unsigned b = 0; b < grid; ++b) { blockIdx = {b, 0, 0}; body(); __syncthreads(); }
        });
    for (auto& thread : threads) thread.join();
}
"""

LL16 = """
    u32 first, second; uint2 data; const u64 start = px_now_ns();
    for (;;) {
        const volatile u32* word = (const volatile u32*)at;
        second = word[3]; data.y = word[2]; first = word[1]; data.x = word[0];
        if (first == flag && second == flag) { data.y = word[2]; data.x = word[0]; return data; }
        sched_yield();
        if (px_now_ns() - start > 10000000000ull) __trap();
    }
"""
BODIES = {
    "float to_float(f16 value)": "_Float16 half; memcpy(&half, &value, 2); return half;",
    "bf16 from_float<bf16>(float value)": "u32 b = __float_as_uint(value); return {(u16)((b + 0x7fff + (b >> 16 & 1)) >> 16)};",
    "f16 from_float<f16>(float value)": "_Float16 half = value; f16 bits; memcpy(&bits, &half, 2); return bits;",
    "u32 bf16x2_from(float low, float high)": "return from_float<bf16>(low).bits | (u32)from_float<bf16>(high).bits << 16;",
    "u32 px_load_acquire(u64 at)": "sched_yield(); return __atomic_load_n((u32*)at, __ATOMIC_ACQUIRE);",
    "void px_store_release(u64 at, u32 value)": "__atomic_store_n((u32*)at, value, __ATOMIC_RELEASE);",
    "u64 px_now_ns()": "return std::chrono::steady_clock::now().time_since_epoch().count();",
    "uint4 px_ld16(const void* at)": "if ((u64)at & 15) __trap(); uint4 v; memcpy(&v, at, 16); return v;",
    "void px_st16(void* at, uint4 v)": "if ((u64)at & 15) __trap(); memcpy(at, &v, 16);",
    "void px_st_ll16(void* at, uint2 data, u32 flag)": (
        "u32* word = (u32*)at; word[0] = data.x; word[2] = data.y;"
        "__atomic_store_n(word + 1, flag, __ATOMIC_RELEASE); __atomic_store_n(word + 3, flag, __ATOMIC_RELEASE);"
    ),
    "uint2 px_ld_ll16(const void* at, u32 flag, u32 timeout_ms = PX_TIMEOUT_MS)": LL16,
}
"""Replacements for functions of px.cuh that are PTX: head -> body."""


NVSHMEM_BODIES = {
    "u64 nvshmem_signal_fetch(const u64* signal)": "sched_yield(); return __atomic_load_n(signal, __ATOMIC_ACQUIRE);"
}
NVSHMEM = r"""
static Px everybody;
extern "C" __attribute__((visibility("default"))) void know(const Px* px) { everybody = *px; }
extern "C" int px_nvshmem_my_pe() { return everybody.rank; }
extern "C" int px_nvshmem_n_pes() { return everybody.world; }
extern "C" void px_nvshmem_put_signal_block(void* to, const void* from, u64 bytes, u64* signal, u64 value, int op, int pe) {
    if (op != NVSHMEM_SIGNAL_SET || pe < 0 || pe >= everybody.world) __trap();
    px_copy(px_at(everybody, pe, (char*)to), from, bytes, threadIdx.x, blockDim.x);
    __syncthreads();
    if (threadIdx.x == 0) __atomic_store_n(px_at(everybody, pe, signal), value, __ATOMIC_RELEASE);
}
"""
"""Replacements for the NVSHMEM device functions that the kit's own kernels call."""


def header() -> str:
    """Returns px.cuh with the functions of `BODIES` replaced. Nothing calls its other functions with PTX."""
    text = nvrtc.header().replace("#pragma once", "")
    return _replaced(text.replace("#define PX_TIMEOUT_MS 2000", "#define PX_TIMEOUT_MS 20000"), BODIES)


def nvshmem_header() -> str:
    """Returns px_nvshmem.cuh with the functions of `NVSHMEM_BODIES` replaced, and `NVSHMEM` behind it."""
    return _replaced((gcc.INCLUDE / nvshmem_link.HEADER).read_text(), NVSHMEM_BODIES) + NVSHMEM


def _replaced(text: str, bodies: dict[str, str]) -> str:
    for head, body in bodies.items():
        text, count = re.subn(
            rf"({re.escape(head)}) \{{.*?\n\}}", lambda m, body=body: f"{m[1]} {{ {body} }}", text, flags=re.S
        )
        assert count == 1, f"there is no `{head}` any more"
    return text


def _wrapper(function: arguments.Function) -> str:
    """Source of a C function that launches a kernel: grid, block, then the kernel's own parameters (Px by address)."""
    taken = ["unsigned grid", "unsigned block"]
    given = []
    for parameter in function.parameters:
        by_value = parameter.is_px and not parameter.pointers
        taken.append(f"const Px* {parameter.name}_at" if by_value else f"{parameter.type} {parameter.name}_in")
        given.append(f"*{parameter.name}_at" if by_value else f"{parameter.name}_in")
    call = f"{function.name}({', '.join(given)})"
    return (
        f'extern "C" __attribute__((visibility("default"))) void launch_{function.name}({", ".join(taken)}) '
        f"{{ launch(grid, block, [=] {{ {call}; }}); }}\n"
    )


class Kernel:
    """A kernel, called as `kernel[grid, block](...)`. Its blocks have THREADS threads, whatever `block` is."""

    def __init__(self, library: ctypes.CDLL, function: arguments.Function) -> None:
        self._call = library[f"launch_{function.name}"]
        self._function = function
        self._convert = [converter(p, i, function, "cpu") for i, p in enumerate(function.parameters)]

    def __getitem__(self, shape: tuple[Any, ...]) -> Any:
        return functools.partial(self._launch, shape[0])

    def _launch(self, grid: int, *arguments: Any) -> None:
        passed: list[Any] = [ctypes.c_uint(grid), ctypes.c_uint(THREADS)]
        for parameter, convert, value in zip(self._function.parameters, self._convert, arguments, strict=True):
            ready = convert(value)
            if parameter.is_px:
                passed.append(ctypes.byref(ready))
            elif parameter.pointers:
                passed.append(ctypes.c_void_p(ready))
            else:
                passed.append(ctypes.c_longlong(ready))
        self._call(*passed)


def compile(text: str, options: Sequence[str] = ()) -> SimpleNamespace:
    """Stand-in for `cuda.compile`."""
    return _compiled(text, options=options)[0]


def compile_over_nvshmem(text: str) -> SimpleNamespace:
    """Stand-in for `shmem.compile`."""
    kernels, library = _compiled(text, nvshmem_header())
    library.know(ctypes.byref(symm.connect().px))
    return kernels


def _compiled(text: str, behind: str = "", options: Sequence[str] = ()) -> tuple[SimpleNamespace, ctypes.CDLL]:
    functions = [function for function in arguments.exported(text).values() if function.kernel]
    source = PRELUDE + header() + behind + text + "".join(map(_wrapper, functions))
    key = build.content_key("emulated cuda", source, *options)
    library = ctypes.CDLL(
        str(build.once(f"{key}.so", lambda path: gcc.compile_shared(source, ("-O1", "-pthread", *options), path)))
    )
    kernels = SimpleNamespace(**{function.name: Kernel(library, function) for function in functions})
    return kernels, library


class Stream:
    """A stream that runs all work immediately."""

    def __init__(self, priority: int = 0) -> None:
        self.priority = priority

    def wait_stream(self, other: "Stream") -> None:
        """Does nothing: no work is ever pending."""

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def install() -> None:
    """Replaces the kit's CUDA and NVSHMEM modules in this process by the emulation, on symm's memory."""
    cuda.compile = compile  # type: ignore[assignment]
    shmem = ModuleType("sandbox.kit.shmem")
    shmem.compile = compile_over_nvshmem  # type: ignore[attr-defined]
    shmem.__path__ = [str(Path(sandbox.kit.__file__).parent / "shmem")]  # its examples are the real ones
    shmem.__getattr__ = lambda name: getattr(symm, name)  # type: ignore[method-assign]
    sys.modules["sandbox.kit.shmem"] = sandbox.kit.shmem = shmem  # type: ignore[attr-defined]
    torch.cuda.Stream = Stream  # type: ignore[assignment, misc]
    torch.cuda.current_stream = Stream  # type: ignore[assignment]
    torch.cuda.stream = lambda stream: stream  # type: ignore[assignment]
