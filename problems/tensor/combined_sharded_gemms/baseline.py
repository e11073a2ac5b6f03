"""Columns of all tokens become all columns of some tokens with one all-to-all; then a local MLP."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(x_local: torch.Tensor, W1: torch.Tensor, W2: torch.Tensor) -> torch.Tensor:
    """x_local [M, H/W], W1 [H, F], W2 [F, H] -> [M/W, H]: silu(x·W1)·W2 for row block r of the joined x, on
    rank r.
    """
    world = dist.get_world_size()
    received = torch.empty_like(x_local, memory_format=torch.contiguous_format)
    dist.all_to_all_single(received, x_local.contiguous())
    # Piece s of `received` holds rank s's columns of this rank's rows.
    rows = received.view(world, -1, x_local.shape[1]).transpose(0, 1).reshape(-1, world * x_local.shape[1])
    return torch.nn.functional.silu(rows @ W1) @ W2
