"""Asks for the address of a PE that the world does not have."""

import torch

from sandbox.kit import shmem


def solution(tensor: torch.Tensor) -> torch.Tensor:
    shmem.ptr(shmem.stage(tensor), shmem.world)
    return tensor.clone()
