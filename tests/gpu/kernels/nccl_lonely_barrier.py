"""An NCCL barrier to which one rank does not come."""

import torch

from sandbox.kit import nccl

kernels = nccl.compile(r"""
extern "C" __global__ void barrier(ncclDevComm dev) {
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, dev, ncclTeamTagLsa(), blockIdx.x);
    barrier.sync(cta, cuda::memory_order_acq_rel);
}
""")
dev = nccl.devcomm(lsa_barriers=1)


def solution(tensor: torch.Tensor) -> torch.Tensor:
    if torch.distributed.get_rank() == 0:
        kernels.barrier[1, 64](dev)
    return tensor.clone()
