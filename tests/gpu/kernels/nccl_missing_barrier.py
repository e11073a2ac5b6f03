"""Reads the peers' windows without a barrier, while the last rank has not filled its own."""

import torch

from sandbox.kit import nccl

kernels = nccl.compile(r"""
extern "C" __global__ void late(u32 milliseconds) {
    const u64 start = px_now_ns();
    while (px_now_ns() - start < 1000000ull * milliseconds) {}
}
extern "C" __global__ void add(ncclWindow_t staged, int world, bf16* y, i64 n) {
    for (i64 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float sum = 0;
        for (int p = 0; p < world; ++p) sum += to_float(((bf16*)ncclGetLsaPointer(staged, 0, p))[i]);
        y[i] = from_float<bf16>(sum);
    }
}
""")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    staged, result = nccl.window(tensor.shape, tensor.dtype), torch.empty_like(tensor)
    if torch.distributed.get_rank() == nccl.world() - 1:
        kernels.late[1, 1](200)
    staged.tensor.copy_(tensor)
    kernels.add[8, 256](staged, nccl.world(), result, tensor.numel())
    return result
