# expect: WRONG_RESULT
# problem: clip_grad_norm_no_ep
# twin: honest_clip
"""The right norm, but the gradients are left as they were."""

import torch
import torch.distributed as dist


def solution(grad_tensors, max_norm, norm_type=2.0, fsdp_group=None):
    total = sum(g.float().norm(norm_type) ** norm_type for g in grad_tensors)
    dist.all_reduce(total, group=fsdp_group)
    return total ** (1 / norm_type)
