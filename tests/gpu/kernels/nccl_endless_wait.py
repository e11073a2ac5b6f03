"""Waits in a loop of its own for a peer's flag in a window, without any help of the kit's that would end it."""

import torch

from sandbox.kit import nccl

kernels = nccl.compile(r"""
extern "C" __global__ void wait(ncclWindow_t flags, int peer) {
    while (*(volatile int*)ncclGetLsaPointer(flags, 0, peer) == 0) {}
}
""")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    flags = nccl.window(1024, torch.int32)
    kernels.wait[1, 32](flags, 1 - torch.distributed.get_rank())
    return tensor.clone()
