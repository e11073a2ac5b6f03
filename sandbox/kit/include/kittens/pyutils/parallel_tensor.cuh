// TKParallelTensor over the kit's symmetric memory, with the same interface for kernels as ThunderKittens' own class. When
// sandbox.kit builds an extension, this file replaces ThunderKittens' file of the same name. It has no broker, no
// sockets and no multicast.
#pragma once
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

namespace kittens {
namespace py {

struct TKParallelTensor {
    at::Tensor data_;  // this rank's part
    std::vector<int64_t> shape_;
    at::ScalarType dtype_;
    std::vector<void*> raw_ptrs_;  // addresses of all ranks' parts in this process
    size_t allocated_size_;
    int local_rank_, local_world_size_;
    bool multicast_ = false;
    void* multicast_ptr_ = nullptr;
    size_t multicast_allocated_size_ = 0;

    TKParallelTensor(const std::vector<int64_t>& shape, const at::ScalarType& dtype, int local_rank, int local_world_size, bool multicast)
        : TKParallelTensor(ask("memory", pybind11::cast(shape), pybind11::cast(dtype), local_rank, local_world_size, multicast), local_rank,
                           local_world_size) {}
    TKParallelTensor(const at::Tensor& tensor, int local_rank, int local_world_size, bool multicast)
        : TKParallelTensor(ask("adopted", pybind11::cast(tensor), pybind11::none(), local_rank, local_world_size, multicast), local_rank,
                           local_world_size) {}
    TKParallelTensor(TKParallelTensor&&) = default;
    TKParallelTensor(const TKParallelTensor&) = delete;

    at::Tensor data() const { return data_; }

  private:
    using Memory = std::pair<at::Tensor, std::vector<uint64_t>>;

    static Memory ask(const char* what, pybind11::object first, pybind11::object dtype, int rank, int world, bool multicast) {
        return pybind11::module_::import("utils.parallelkittens_runtime").attr(what)(first, dtype, rank, world, multicast).cast<Memory>();
    }
    TKParallelTensor(const Memory& memory, int local_rank, int local_world_size)
        : data_(memory.first), shape_(memory.first.sizes().vec()), dtype_(memory.first.scalar_type()),
          allocated_size_(memory.first.nbytes()), local_rank_(local_rank), local_world_size_(local_world_size) {
        for (uint64_t address : memory.second) raw_ptrs_.push_back(reinterpret_cast<void*>(address));
    }
};

}  // namespace py
}  // namespace kittens

#define BIND_TK_PARALLEL_TENSOR(m)                                                                                                         \
    pybind11::class_<kittens::py::TKParallelTensor>(m, "TKParallelTensor")                                                                 \
        .def(pybind11::init<const at::Tensor&, int, int, bool>(), pybind11::arg("tensor"), pybind11::arg("local_rank"),                    \
             pybind11::arg("local_world_size"), pybind11::arg("multicast") = false)                                                        \
        .def(pybind11::init<const std::vector<int64_t>&, const at::ScalarType&, int, int, bool>(), pybind11::arg("shape"),                 \
             pybind11::arg("dtype"), pybind11::arg("local_rank"), pybind11::arg("local_world_size"), pybind11::arg("multicast") = false)   \
        .def("data", &kittens::py::TKParallelTensor::data)                                                                                 \
        .def_readonly("data_", &kittens::py::TKParallelTensor::data_)                                                                      \
        .def_readonly("local_rank_", &kittens::py::TKParallelTensor::local_rank_)                                                          \
        .def_readonly("local_world_size_", &kittens::py::TKParallelTensor::local_world_size_)                                              \
        .def_property_readonly_static("kit_memory", [](const pybind11::object&) { return true; })
