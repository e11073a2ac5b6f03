"""Every rank asks for memory of another shape."""

import torch
import torch.distributed as dist
from utils import parallelkittens_runtime


def solution(tensor):
    shape = (64 + dist.get_rank(), 64)
    part, _ = parallelkittens_runtime.memory(shape, torch.bfloat16, dist.get_rank(), dist.get_world_size(), False)
    return part
