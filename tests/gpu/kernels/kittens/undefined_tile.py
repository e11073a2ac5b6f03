"""Has a mistake in its CUDA source."""

from sandbox.kit import kittens

mod = kittens.compile(r"""
#include "kittens.cuh"
extern "C" __global__ void broken(float* y) {
    kittens::rt_fl<16, no_such_width> tile;
}
""")


def solution(tensor):
    return tensor
