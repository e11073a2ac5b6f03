# problem: clip_grad_norm_no_ep
"""All gradients in one pass, taken out of the list, scaled by a factor that stays on the device."""

import torch
import torch.distributed as dist


def solution(grad_tensors, max_norm, norm_type=2.0, fsdp_group=None):
    gradients = [grad_tensors.pop() for _ in grad_tensors[:]]
    total = torch.stack([g.float().norm(norm_type) ** norm_type for g in gradients]).sum()
    dist.all_reduce(total, group=fsdp_group)
    norm = total ** (1 / norm_type)
    scale = (max_norm / norm).clamp(max=1.0)
    for g in gradients:
        g.copy_((g.float() * scale).to(g.dtype))
    return norm
