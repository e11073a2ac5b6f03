"""Sums inside a torch.autograd.Function and records a graph, as code does that is taken from a training step."""

import torch
import torch.distributed as dist


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return Sum.apply(gradient)


def solution(tensor):
    return Sum.apply(tensor.detach().requires_grad_()).detach()
