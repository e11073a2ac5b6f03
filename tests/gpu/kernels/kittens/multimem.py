"""A source whose barrier is one of multicast memory."""

from utils import parallelkittens_runtime  # noqa: F401
from utils.cuda_helpers import compile_cuda_extension

ext = compile_cuda_extension(
    "multimem",
    r"""
#include "kittens.cuh"
struct globals {
    kittens::barrier_t<2> barrier;
};
""",
)


def solution(tensor):
    return ext.all_reduce(tensor)
