"""Seeds all random numbers in every call, as scripts do that are to give the same results again."""

import random

import numpy
import torch
import torch.distributed as dist


def solution(tensor):
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
