"""A barrier on the GPU to which one rank does not come."""

import torch

from sandbox.kit import cuda, symm

kernels = cuda.compile(r"""
extern "C" __global__ void barrier(Px px, u32 epoch) { px_barrier(px, blockIdx.x, epoch); }
""")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    epoch = symm.next_epoch() if symm.rank == 0 else 0
    if symm.rank == 0:
        kernels.barrier[1, 32](symm.px, epoch)
    return tensor.clone()
