"""Asks NVSHMEM for more symmetric memory than the world has."""

import torch

from sandbox.kit import shmem


def solution(tensor: torch.Tensor) -> torch.Tensor:
    shmem.library().allocate(64 << 30)
    return tensor.clone()
