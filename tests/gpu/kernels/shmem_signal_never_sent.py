"""Waits for a signal that the other PE does not send."""

import torch

from sandbox.kit import shmem

kernels = shmem.compile(r"""
extern "C" __global__ void wait(u64* here) { nvshmem_signal_wait_until(here, NVSHMEM_CMP_GE, 1); }
""")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    here = shmem.empty(8, torch.int64)
    if shmem.rank == 0:
        kernels.wait[1, 1](here)
    return tensor.clone()
