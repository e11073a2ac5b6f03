"""Views bfloat16 memory as one of floats."""

from sandbox.kit import kittens

mod = kittens.compile(r"""
#include "kittens.cuh"
extern "C" __global__ void widened(const __nv_bfloat16* x, int rows) {
    PxView<kittens::gl<float, 1, 1, -1, 64>> view(x, 1, 1, rows, 64);
}
""")


def solution(tensor):
    return tensor
