"""Asks for a multicast tensor, as every archived ParallelKittens kernel does."""

import torch
from utils.parallelkittens_runtime import create_parallel_tensor


def solution(tensor):
    shared = create_parallel_tensor(None, tuple(tensor.shape), torch.bfloat16)
    return shared.data_.clone()
