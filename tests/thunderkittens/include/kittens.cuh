// A stand-in for tests: global layouts, register tiles of one warp, and parallel global layouts, without TMA and multicast.
#pragma once
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <cuda_bf16.h>

namespace kittens {
using bf16 = __nv_bfloat16;

struct runtime_dim {
    size_t v;
    __host__ __device__ runtime_dim(size_t extent) : v(extent) {}
    __host__ __device__ operator size_t() const { return v; }
};
template <int extent> struct compiled_dim {
    __host__ __device__ compiled_dim(size_t) {}
    __host__ __device__ operator size_t() const { return extent; }
};
template <int extent> using dim = std::conditional_t<extent == -1, runtime_dim, compiled_dim<extent>>;

struct coord { int b, d, r, c; };

template <class T, int b, int d, int r, int c> struct gl {
    static constexpr int __b__ = b, __d__ = d, __r__ = r, __c__ = c;
    T* raw_ptr;
    dim<b> batch_internal;
    dim<d> depth_internal;
    dim<r> rows_internal;
    dim<c> cols_internal;
    __device__ size_t cols() const { return cols_internal; }
#ifndef KITTENS_NO_HOST
    gl(T* data, size_t batch, size_t depth, size_t rows, size_t cols)
        : raw_ptr(data), batch_internal(batch), depth_internal(depth), rows_internal(rows), cols_internal(cols) {}
#endif
};

template <class GL, int N, bool MULTICAST = true> struct pgl {
    static constexpr int num_devices = N;
    static constexpr bool multicast = MULTICAST;
    GL gls[N];
};

// A tile in the registers of a warp: lane l has the elements l, l + 32, ... by rows.
template <int rows_, int cols_> struct rt_fl {
    static constexpr int rows = rows_, cols = cols_;
    float own[rows_ * cols_ / 32];
};

template <class T> concept storable = std::same_as<T, float> || std::same_as<T, bf16>;

template <storable T> __device__ inline float widened(T value) {
    if constexpr (std::is_same_v<T, float>) return value;
    else return std::bit_cast<float>((uint32_t)std::bit_cast<uint16_t>(value) << 16);
}

template <storable T> __device__ inline T narrowed(float value) {
    if constexpr (std::is_same_v<T, float>) return value;
    else return __float2bfloat16(value);
}

struct warp {
    template <class Tile> __device__ static void zero(Tile& tile) {
        for (float& value : tile.own) value = 0;
    }
    template <class Tile> __device__ static void add(Tile& sum, const Tile& a, const Tile& b) {
        for (int i = 0; i < Tile::rows * Tile::cols / 32; ++i) sum.own[i] = a.own[i] + b.own[i];
    }
    template <class Tile, class GL> __device__ static void load(Tile& tile, const GL& from, const coord& at) {
        for (int i = 0; i < Tile::rows * Tile::cols / 32; ++i) tile.own[i] = widened(from.raw_ptr[place<Tile>(from, at, i)]);
    }
    template <class Tile, class GL> __device__ static void store(const GL& to, const Tile& tile, const coord& at) {
        using T = std::remove_cvref_t<decltype(*to.raw_ptr)>;
        for (int i = 0; i < Tile::rows * Tile::cols / 32; ++i) to.raw_ptr[place<Tile>(to, at, i)] = narrowed<T>(tile.own[i]);
    }
    template <class Tile, class GL> __device__ static size_t place(const GL& in, const coord& at, int i) {
        const int element = 32 * i + threadIdx.x % 32;
        const size_t row = (size_t)at.r * Tile::rows + element / Tile::cols;
        return row * in.cols() + (size_t)at.c * Tile::cols + element % Tile::cols;
    }
};
}  // namespace kittens
