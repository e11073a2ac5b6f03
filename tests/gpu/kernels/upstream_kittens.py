"""As ParallelKittens kernels for the published harness are written, but without multicast: an extension with parallel tensors."""

import os

import torch
from utils.cuda_helpers import compile_cuda_extension
from utils.parallelkittens_runtime import get_or_create_barrier, get_or_create_parallel_tensor

TK = os.environ["THUNDERKITTENS_ROOT"]
NUM_DEVICES = 2
SOURCE = r"""
#include "kittens.cuh"
#include "pyutils/torchutils.cuh"
#include <c10/cuda/CUDAStream.h>

using namespace kittens;
static constexpr int NUM_DEVICES = 2;
using Tile = rt_fl<16, 64>;
using Rows = gl<bf16, 1, 1, -1, -1>;
using Parts = pgl<Rows, NUM_DEVICES, false>;
using Flags = pgl<gl<int, 1, 1, -1, -1>, NUM_DEVICES, false>;

__global__ void all_arrive(const __grid_constant__ Flags flags, int rank, int epoch) {
    const int peer = threadIdx.x;
    if (peer >= NUM_DEVICES) return;
    __threadfence_system();
    *(volatile int*)(flags.gls[peer].raw_ptr + rank) = epoch;
    const long long start = clock64();
    while (*(volatile int*)(flags.gls[rank].raw_ptr + peer) < epoch)
        if (clock64() - start > 4000000000ll) __trap();
    __threadfence_system();
}

__global__ void add_parts(const __grid_constant__ Parts parts, const __grid_constant__ Rows sum) {
    Tile total, part;
    warp::zero(total);
    for (int peer = 0; peer < NUM_DEVICES; ++peer) {
        warp::load(part, parts.gls[peer], {0, 0, (int)blockIdx.x, 0});
        warp::add(total, total, part);
    }
    warp::store(sum, total, {0, 0, (int)blockIdx.x, 0});
}

void all_reduce(kittens::py::TKParallelTensor& tensor, kittens::py::TKParallelTensor& barrier, const at::Tensor& out, int epoch) {
    const auto stream = c10::cuda::getCurrentCUDAStream().stream();
    const auto flags = kittens::py::parallel_tensor_to_pgl<Flags>(barrier);
    const int rows = out.size(0), rank = tensor.local_rank_;
    const Rows sum(reinterpret_cast<bf16*>(out.data_ptr()), 1, 1, rows, 64);
    all_arrive<<<1, 32, 0, stream>>>(flags, rank, 2 * epoch - 1);
    add_parts<<<rows / 16, 32, 0, stream>>>(kittens::py::parallel_tensor_to_pgl<Parts>(tensor), sum);
    all_arrive<<<1, 32, 0, stream>>>(flags, rank, 2 * epoch);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    BIND_TK_PARALLEL_TENSOR(m);
    m.def("all_reduce", &all_reduce);
}
"""

_ext = None
_epoch = 0


def _get_ext():
    global _ext
    if _ext is None:
        _ext = compile_cuda_extension(
            "kittens_all_reduce",
            SOURCE,
            extra_cuda_cflags=["-std=c++20", "-DKITTENS_HOPPER", "--expt-relaxed-constexpr", "--expt-extended-lambda"],
            extra_include_paths=[f"{TK}/include", f"{TK}/prototype"],
            extra_ldflags=["-lcuda"],
        )
    return _ext


@torch.no_grad()
def solution(tensor: torch.Tensor) -> torch.Tensor:
    global _epoch
    ext = _get_ext()
    rows = -(-tensor.numel() // 1024) * 16
    shared = get_or_create_parallel_tensor(ext, (rows, 64), torch.bfloat16, multicast=False)
    barrier = get_or_create_barrier(ext, num_devices=NUM_DEVICES)
    _epoch += 1
    shared.data_.view(-1)[: tensor.numel()].copy_(tensor.reshape(-1))
    out = torch.empty((rows, 64), device=tensor.device, dtype=torch.bfloat16)
    ext.all_reduce(shared, barrier, out, _epoch)
    return out.view(-1)[: tensor.numel()].view(tensor.shape)
