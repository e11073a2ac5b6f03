"""Global gradient-norm clipping: one scalar all-reduce between two passes over the gradients."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(
    grad_tensors: list[torch.Tensor | None],
    max_norm: float,
    norm_type: float = 2.0,
    fsdp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Scales the gradients in place so that their global p-norm is at most max_norm.

    grad_tensors: shards of any shape, None entries are skipped. Returns the norm before clipping, 0-dim float32, the same on
    every rank of fsdp_group (no reduction without a group).
    """
    gradients = [gradient for gradient in grad_tensors if gradient is not None]
    device = gradients[0].device if gradients else torch.device("cpu")
    wide = torch.promote_types(gradients[0].dtype, torch.float32) if gradients else torch.float32
    total = torch.zeros((), dtype=wide, device=device)
    for gradient in gradients:
        total += torch.linalg.vector_norm(gradient.to(wide), norm_type) ** norm_type
    if fsdp_group is not None:
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=fsdp_group)
    norm = total ** (1.0 / norm_type)
    if norm > max_norm:
        scale = max_norm / norm
        for gradient in gradients:
            gradient.mul_(scale)
    return norm
