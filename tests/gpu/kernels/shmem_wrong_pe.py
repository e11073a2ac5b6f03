"""Puts to a PE that the world does not have, so far beyond that its entry in the table of heaps is not mapped."""

import torch

from sandbox.kit import shmem

kernels = shmem.compile(r"""
extern "C" __global__ void put(char* to, const char* from, i64 bytes) {
    nvshmemx_putmem_block(to, from, bytes, 1 << 30);
    nvshmem_quiet();
}
""")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    to = shmem.empty(tensor.shape, tensor.dtype)
    kernels.put[1, 128](to, tensor, tensor.nbytes)
    torch.cuda.synchronize()
    return tensor.clone()
