"""Broadcast with one collective into a fresh buffer."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
    """tensor [M, N] -> [M, N]: rank src's tensor, as a fresh tensor on every rank (a copy on src itself)."""
    received = tensor.clone() if dist.get_rank() == src else torch.empty_like(tensor)
    dist.broadcast(received, src=src)
    return received
