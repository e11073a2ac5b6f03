"""Pieces of gradient-norm clipping."""

from collections.abc import Iterable

import torch
import torch.distributed as dist


def power_sum(gradients: Iterable[torch.Tensor], norm_type: float, like: torch.Tensor) -> torch.Tensor:
    """Σ |g|^p over all elements, 0-dim, in float32 (float64 for float64 gradients), on the device of `like`."""
    wide = torch.promote_types(like.dtype, torch.float32)
    total = torch.zeros((), dtype=wide, device=like.device)
    for gradient in gradients:
        total += torch.linalg.vector_norm(gradient.to(wide), norm_type) ** norm_type
    return total


def sum_over(total: torch.Tensor, *groups: dist.ProcessGroup | None) -> None:
    """Sums `total` in place over one group after the other; None is skipped."""
    for group in groups:
        if group is not None:
            dist.all_reduce(total, op=dist.ReduceOp.SUM, group=group)


def scale_to(gradients: Iterable[torch.Tensor], norm: torch.Tensor, max_norm: float) -> None:
    """Multiplies the gradients in place by max_norm / norm when the norm is above max_norm (the host reads
    it).
    """
    if norm > max_norm:
        scale = max_norm / norm
        for gradient in gradients:
            gradient.mul_(scale)
