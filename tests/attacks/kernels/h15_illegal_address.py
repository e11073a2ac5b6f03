# expect: DEVICE_ERROR | CRASH
# device: cuda
"""Writes to an address of no GPU; the context is lost for good, and with it the world."""

import torch

from sandbox.kit import cuda

module = cuda.compile(r"""
extern "C" __global__ void wild(int* p) { p[threadIdx.x + (1ull << 40)] = 1; }
""")


def solution(tensor):
    module.wild[1, 32](torch.zeros(1, dtype=torch.int32, device=tensor.device))
    torch.cuda.synchronize()
    return tensor.clone()
