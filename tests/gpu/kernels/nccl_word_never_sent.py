"""A low-latency word for which one rank waits, and which the other does not send."""

import torch

from sandbox.kit import nccl

kernels = nccl.compile(r"""
extern "C" __global__ void receive(ncclDevComm dev, ncclLLA2AHandle words, u64* y) {
    ncclCoopCta cta;
    ncclLLA2ASession<ncclCoopCta> session(cta, dev, ncclTeamLsa(dev), words, 0, 1);
    y[0] = session.recv<u64>(0);
    session.endEpoch(cta);
}
""")
dev = nccl.devcomm(ll_blocks=1, ll_slots=1)


def solution(tensor: torch.Tensor) -> torch.Tensor:
    if torch.distributed.get_rank() == 0:
        kernels.receive[1, 32](dev, dev, torch.empty(1, dtype=torch.int64, device=tensor.device))
    return tensor.clone()
