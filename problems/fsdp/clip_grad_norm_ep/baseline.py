"""Global gradient-norm clipping for dense and expert gradients with one common norm."""

import torch
import torch.distributed as dist

from problems.shared.clipping import power_sum, scale_to, sum_over


@torch.no_grad()
def solution(
    non_ep_grad_tensors: list[torch.Tensor | None],
    ep_grad_tensors: list[torch.Tensor | None],
    max_norm: float,
    norm_type: float = 2.0,
    ep_size: int = 1,
    fsdp_group: dist.ProcessGroup | None = None,
    ep_fsdp_group: dist.ProcessGroup | None = None,
    ep_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Divides the expert gradients by ep_size, then scales all gradients in place to a global p-norm of
    max_norm at most.

    Both lists hold shards of any shape; None entries are skipped. The sum of p-th powers of the dense
    gradients runs over fsdp_group, that of the expert gradients over ep_fsdp_group and then ep_group (a group
    that is None is left out). Returns the norm before clipping, 0-dim float32.
    """
    dense = [gradient for gradient in non_ep_grad_tensors if gradient is not None]
    experts = [gradient for gradient in ep_grad_tensors if gradient is not None]
    everything = dense + experts
    if ep_size > 1:
        for gradient in experts:
            gradient.mul_(1.0 / ep_size)
    like = everything[0] if everything else torch.empty(0)
    dense_sum = power_sum(dense, norm_type, like)
    expert_sum = power_sum(experts, norm_type, like)
    sum_over(dense_sum, fsdp_group)
    sum_over(expert_sum, ep_fsdp_group, ep_group)
    norm = (dense_sum + expert_sum) ** (1.0 / norm_type)
    scale_to(everything, norm, max_norm)
    return norm
