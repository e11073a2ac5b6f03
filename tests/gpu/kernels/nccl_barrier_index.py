"""A barrier whose index is the number of barriers."""

import torch

from sandbox.kit import nccl

kernels = nccl.compile(r"""
extern "C" __global__ void barrier(ncclDevComm dev) {
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, dev, ncclTeamTagLsa(), blockIdx.x + 1);
    barrier.sync(cta, cuda::memory_order_acq_rel);
}
""")
dev = nccl.devcomm(lsa_barriers=8)


def solution(tensor: torch.Tensor) -> torch.Tensor:
    kernels.barrier[8, 64](dev)
    return tensor.clone()
