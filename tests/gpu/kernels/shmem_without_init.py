"""Uses NVSHMEM's device functions in a process in which NVSHMEM was never initialised."""

import sys

import torch

from sandbox.kit import cuda
from sandbox.kit.compilers import source_files
from sandbox.kit.shmem import link as nvshmem_link

given = source_files.read(
    r"""
extern "C" __global__ void put(char* to, const char* from, i64 bytes) {
    nvshmemx_putmem_block(to, from, bytes, 1 - nvshmem_my_pe());
}
""",
    sys._getframe(),
)
linker = nvshmem_link.Linker(cuda.device_arch())
kernels = cuda.load(linker.behind_header(given), (), None, linker.to_cubin)


def connect() -> None:
    """What a kernel would have to call. Nothing calls it."""
    from sandbox.kit import shmem

    shmem.connect()


def solution(tensor: torch.Tensor) -> torch.Tensor:
    kernels.put[1, 128](torch.empty_like(tensor), tensor, tensor.nbytes)
    return tensor.clone()
