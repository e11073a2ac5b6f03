"""Uses torch's symmetric memory on NVSHMEM, and then the kit's: the process is initialised once."""

import torch
import torch.distributed._symmetric_memory as symm_mem

from sandbox.kit import shmem

symm_mem.set_backend("NVSHMEM")
buffer = symm_mem.empty(1024, device="cuda")
symm_mem.rendezvous(buffer, torch.distributed.group.WORLD.group_name)
shmem.connect()


def solution(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()
