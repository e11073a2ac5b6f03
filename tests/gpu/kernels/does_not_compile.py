"""CUDA code with a name that nobody has defined."""

import torch

from sandbox.kit import cuda

kernels = cuda.compile(r"""
extern "C" __global__ void wrong(int* x) {
    *x = no_such_name;
}
""")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()
