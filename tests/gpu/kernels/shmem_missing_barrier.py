"""A barrier of NVSHMEM to which one PE does not come; it has no limit of its own."""

import torch

from sandbox.kit import shmem

kernels = shmem.compile(r"""
extern "C" __global__ void barrier() { nvshmemx_barrier_all_block(); }
""")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    if shmem.rank == 0:
        kernels.barrier[1, 128]()
    return tensor.clone()
