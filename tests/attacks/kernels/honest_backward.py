"""Asks for its argument's gradient, which autograd adds to the argument's own."""

import torch.distributed as dist


def solution(tensor):
    tensor.requires_grad_()
    (tensor * tensor.detach()).sum().backward()
    total = tensor.grad
    dist.all_reduce(total)
    return total
