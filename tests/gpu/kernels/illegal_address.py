"""Writes to an address of no GPU."""

import torch

from sandbox.kit import cuda

kernels = cuda.compile(r"""
extern "C" __global__ void wild(int* p) { p[threadIdx.x + (1ull << 40)] = 1; }
""")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    kernels.wild[1, 32](torch.zeros(1, dtype=torch.int32, device=tensor.device))
    return tensor.clone()
