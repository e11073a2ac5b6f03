"""A source for eight GPUs."""

from utils import parallelkittens_runtime  # noqa: F401
from utils.cuda_helpers import compile_cuda_extension

ext = compile_cuda_extension(
    "eight",
    r"""
#include "kittens.cuh"
static constexpr int NUM_DEVICES = 8;
""",
)


def solution(tensor):
    return ext.all_reduce(tensor)
