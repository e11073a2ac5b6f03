"""An all-gather by NVSHMEM's functions in Triton, on the kit's symmetric memory."""

import torch
import torch.distributed._symmetric_memory._nvshmem_triton as nvshmem
import triton
from torch.distributed._symmetric_memory._nvshmem_triton import requires_nvshmem

from sandbox.kit import shmem

shmem.connect()


@requires_nvshmem
@triton.jit
def push(to, source, count, pe):
    nvshmem.put(to, source, count, pe)


def solution(tensor: torch.Tensor) -> torch.Tensor:
    result = shmem.out((shmem.world, *tensor.shape), tensor.dtype)
    result[shmem.rank].copy_(tensor)
    for peer in shmem.order()[1:]:
        push[(1,)](result[shmem.rank], tensor, tensor.numel(), peer)
    shmem.barrier()
    return result
