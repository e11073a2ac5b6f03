"""Frees symmetric memory twice by NVSHMEM's own function, behind the kit's back."""

import torch

from sandbox.kit import shmem


def solution(tensor: torch.Tensor) -> torch.Tensor:
    nvshmem = shmem.library()
    pointer = nvshmem.allocate(1 << 20)
    nvshmem.dll.nvshmem_free(pointer)
    nvshmem.dll.nvshmem_free(pointer)
    return tensor.clone()
