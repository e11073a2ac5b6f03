# device: cuda
"""Returns a view of mapped memory of its own, into which it has copied the argument."""

import torch
import torch.distributed as dist

from sandbox.memory import gpu

buffers = {}


def solution(tensor):
    if tensor.nbytes not in buffers:
        buffers[tensor.nbytes] = gpu.allocate(max(tensor.nbytes, 1))[1]
    total = buffers[tensor.nbytes][: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
    total.copy_(tensor)
    dist.all_reduce(total)
    return total
