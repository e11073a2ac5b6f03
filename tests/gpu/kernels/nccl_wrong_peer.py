"""Adds this rank's own tensor twice in place of its peer's."""

import torch

from sandbox.kit import nccl

kernels = nccl.compile(r"""
extern "C" __global__ void add(ncclDevComm dev, ncclWindow_t staged, bf16* y, i64 n) {
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, dev, ncclTeamTagLsa(), blockIdx.x);
    barrier.sync(cta, cuda::memory_order_acq_rel);
    for (i64 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float sum = 0;
        for (int p = 0; p < dev.lsaSize; ++p) sum += to_float(((bf16*)ncclGetLsaPointer(staged, 0, dev.lsaRank))[i]);
        y[i] = from_float<bf16>(sum);
    }
    barrier.sync(cta, cuda::memory_order_acq_rel);
}
""")
dev = nccl.devcomm(lsa_barriers=8)


def solution(tensor: torch.Tensor) -> torch.Tensor:
    staged, result = nccl.window(tensor.shape, tensor.dtype), torch.empty_like(tensor)
    staged.tensor.copy_(tensor)
    kernels.add[8, 256](dev, staged, result, tensor.numel())
    return result
