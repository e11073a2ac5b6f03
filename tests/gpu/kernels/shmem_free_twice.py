"""Frees symmetric memory twice."""

import torch

from sandbox.kit import shmem


def solution(tensor: torch.Tensor) -> torch.Tensor:
    nvshmem = shmem.library()
    pointer = nvshmem.allocate(1 << 20)
    nvshmem.free(pointer)
    nvshmem.free(pointer)
    return tensor.clone()
