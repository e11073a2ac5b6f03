"""As kernels for the published harness are written: an extension built by nvcc, and symmetric memory's pointers."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from utils.cuda_helpers import compile_cuda_extension

CUDA_SRC = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_bf16.h>
#include <cstdint>

__global__ void one_shot_kernel(const uint64_t* __restrict__ pointers, __nv_bfloat16* __restrict__ out, int world, int64_t n) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        float sum = 0.0f;
        for (int r = 0; r < world; ++r) sum += __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(pointers[r])[i]);
        out[i] = __float2bfloat16(sum);
    }
}

void one_shot(torch::Tensor pointers, torch::Tensor out, int64_t n) {
    const int threads = 256;
    const int blocks = (int)std::min<int64_t>((n + threads - 1) / threads, 1024);
    one_shot_kernel<<<blocks, threads, 0, at::cuda::getCurrentCUDAStream().stream()>>>(
        reinterpret_cast<const uint64_t*>(pointers.data_ptr<int64_t>()),
        reinterpret_cast<__nv_bfloat16*>(out.data_ptr<at::BFloat16>()), (int)pointers.size(0), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("one_shot", &one_shot, "one-shot all-reduce"); }
"""

_ext = None
_cache: dict = {}


def _get_ext():
    global _ext
    if _ext is None:
        _ext = compile_cuda_extension("one_shot_bf16_ext", CUDA_SRC)
    return _ext


def _resources(shape, dtype, device):
    key = (shape, dtype, device)
    if key not in _cache:
        buffer = symm_mem.empty(shape, device=device, dtype=dtype)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        pointers = torch.tensor(handle.buffer_ptrs, device=device, dtype=torch.int64)
        _cache[key] = (buffer, handle, pointers)
    return _cache[key]


@torch.no_grad()
def solution(tensor: torch.Tensor) -> torch.Tensor:
    if dist.get_rank() == 0:
        _get_ext()
    dist.barrier()
    buffer, handle, pointers = _resources(tensor.shape, tensor.dtype, tensor.device)
    buffer.copy_(tensor)
    handle.barrier(channel=0)
    out = torch.empty_like(tensor)
    _get_ext().one_shot(pointers, out, tensor.numel())
    handle.barrier(channel=1)
    return out
