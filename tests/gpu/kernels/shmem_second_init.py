"""Initialises NVSHMEM a second time in its process."""

import torch

from sandbox.kit import shmem

nvshmem = shmem.library()
nvshmem.initialise(shmem.rank, shmem.world, 1 << 20, lambda identity: identity or bytes(128))


def solution(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()
