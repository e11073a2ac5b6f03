"""A kernel that never ends, without any help of the kit's that would end it."""

import torch

from sandbox.kit import cuda

kernels = cuda.compile(r"""
extern "C" __global__ void forever(volatile int* p) { while (p[0] == 0) {} }
""")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    kernels.forever[1, 32](torch.zeros(1, dtype=torch.int32, device=tensor.device))
    return tensor.clone()
