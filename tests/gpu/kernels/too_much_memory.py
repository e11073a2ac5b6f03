"""Asks for more memory than any GPU has."""

import torch


def solution(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(1 << 42, dtype=torch.uint8, device=tensor.device)[: tensor.numel()].to(tensor.dtype)
