"""Writes 16 GiB beyond the end of a peer's window."""

import torch

from sandbox.kit import nccl

kernels = nccl.compile(r"""
extern "C" __global__ void write(ncclDevComm dev, ncclWindow_t small) {
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, dev, ncclTeamTagLsa(), blockIdx.x);
    ((float*)ncclGetLsaPointer(small, 1ull << 34, 1 - dev.lsaRank))[threadIdx.x] = 1;
    barrier.sync(cta, cuda::memory_order_acq_rel);
}
""")
dev = nccl.devcomm(lsa_barriers=1)


def solution(tensor: torch.Tensor) -> torch.Tensor:
    kernels.write[1, 64](dev, nccl.window(1024, torch.float32))
    return tensor.clone()
