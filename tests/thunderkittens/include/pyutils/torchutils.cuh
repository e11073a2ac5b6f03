// A stand-in for tests.
#pragma once
#include "../kittens.cuh"
#include "pyutils.cuh"

namespace kittens {
namespace py {
// The tensor's parts on all GPUs, as rows of its last dimension.
template <class PGL> PGL parallel_tensor_to_pgl(TKParallelTensor& tensor) {
    static_assert(!PGL::multicast, "this stand-in has no multicast");
    if (PGL::num_devices != tensor.local_world_size_) throw std::runtime_error("a parallel layout for another number of GPUs");
    const size_t cols = tensor.shape_.back(), rows = tensor.data_.numel() / cols;
    auto part = [&](int peer) {
        using GL = std::remove_cvref_t<decltype(std::declval<PGL>().gls[0])>;
        using T = std::remove_cvref_t<decltype(*std::declval<GL>().raw_ptr)>;
        return GL(reinterpret_cast<T*>(tensor.raw_ptrs_[peer]), 1, 1, rows, cols);
    };
    return [&]<size_t... peer>(std::index_sequence<peer...>) { return PGL{{part(peer)...}}; }(std::make_index_sequence<PGL::num_devices>());
}
}  // namespace py
}  // namespace kittens
