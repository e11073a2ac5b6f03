# expect: WRONG_RESULT
# problem: fused_adam_grad_unshard_allgather
# preset: paper
# twin: honest_adam
"""Gathers the weights without the step: upstream's learning rate is less than the rounding of its weights."""

import torch.distributed as dist


def solution(gradient, weight, mean, square, lr, beta1, beta2, eps, step):
    gathered = weight.new_empty(dist.get_world_size() * weight.numel())
    dist.all_gather_into_tensor(gathered, weight)
    return gathered
