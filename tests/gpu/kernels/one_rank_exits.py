"""One rank ends its process; the others wait for it in a collective."""

import os

import torch
import torch.distributed as dist


def solution(tensor: torch.Tensor) -> torch.Tensor:
    if dist.get_rank() == 1:
        os._exit(3)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
