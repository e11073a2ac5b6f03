# problem: fused_adam_grad_unshard_allgather
# preset: paper
"""Adam on the own slice, then an all-gather."""

import torch
import torch.distributed as dist


def solution(gradient, weight, mean, square, lr, beta1, beta2, eps, step):
    mean = beta1 * mean.float() + (1 - beta1) * gradient.float()
    square = beta2 * square.float() + (1 - beta2) * gradient.float().square()
    change = lr * (mean / (1 - beta1**step)) / ((square / (1 - beta2**step)).sqrt() + eps)
    updated = (weight.float() - change).to(weight.dtype)
    gathered = updated.new_empty(dist.get_world_size() * updated.numel())
    dist.all_gather_into_tensor(gathered, updated)
    return gathered
