# problem: clip_grad_norm_no_ep
"""Takes the tensors out of the list that it was given."""

import torch
import torch.distributed as dist


def solution(grad_tensors, max_norm, norm_type=2.0, fsdp_group=None):
    gradients = []
    while grad_tensors:
        gradients.append(grad_tensors.pop())
    norms = [torch.linalg.vector_norm(gradient.float(), norm_type) for gradient in gradients]
    total = torch.stack(norms).pow(norm_type).sum()
    dist.all_reduce(total, group=fsdp_group)
    norm = total ** (1.0 / norm_type)
    if norm > max_norm:
        for gradient in gradients:
            gradient.mul_(max_norm / norm)
    return norm
