"""Ranks ask for windows of different sizes."""

import torch

from sandbox.kit import nccl


def solution(tensor: torch.Tensor) -> torch.Tensor:
    nccl.window(1024 * (1 + torch.distributed.get_rank()), torch.float32)
    return tensor.clone()
