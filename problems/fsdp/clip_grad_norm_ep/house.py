"""House kernel: gradient clipping with experts; both sums travel in one word, and the scaling divides by ep_size."""

import torch
import torch.distributed as dist

from sandbox.kit.blocks.clipping import clip


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
    """Divides the expert gradients by ep_size, then scales all gradients in place to a global p-norm of max_norm at most.

    Both lists hold shards of any shape; None entries are skipped. The sum of p-th powers of the dense gradients runs
    over fsdp_group, that of the expert gradients over ep_fsdp_group and ep_group (a group that is None is left out). In
    a full grid these are the same ranks, and one exchange of two numbers is enough. Returns the norm before clipping,
    0-dim float32.
    """
    dense = [gradient for gradient in non_ep_grad_tensors if gradient is not None]
    experts = [gradient for gradient in ep_grad_tensors if gradient is not None]
    groups, expert_groups = [fsdp_group], [ep_fsdp_group, ep_group]
    return clip(dense, max_norm, norm_type, groups, experts, float(max(ep_size, 1)), expert_groups)
