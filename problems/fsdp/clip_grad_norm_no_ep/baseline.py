"""Global gradient-norm clipping: one scalar all-reduce between two passes over the gradients."""

import torch
import torch.distributed as dist

from problems.shared.clipping import power_sum, scale_to, sum_over


@torch.no_grad()
def solution(
    grad_tensors: list[torch.Tensor | None],
    max_norm: float,
    norm_type: float = 2.0,
    fsdp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Scales the gradients in place so that their global p-norm is at most max_norm.

    grad_tensors: shards of any shape, None entries are skipped. Returns the norm before clipping, 0-dim
    float32, the same on every rank of fsdp_group (no reduction without a group).
    """
    gradients = [gradient for gradient in grad_tensors if gradient is not None]
    total = power_sum(gradients, norm_type, like=gradients[0] if gradients else torch.empty(0))
    sum_over(total, fsdp_group)
    norm = total ** (1.0 / norm_type)
    scale_to(gradients, norm, max_norm)
    return norm
