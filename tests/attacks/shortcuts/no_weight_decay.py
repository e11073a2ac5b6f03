"""A training step without weight decay."""

import torch
import torch.distributed as dist
from torch.nn import functional


def solution(x, y, shard, shapes, mean, square, lr, beta1, beta2, epsilon, weight_decay, step):
    world = dist.get_world_size()
    whole = shard.new_empty(world * shard.numel())
    dist.all_gather_into_tensor(whole, shard)
    cut = whole.split([torch.Size(shape).numel() for shape in shapes])
    parts = [part.view(shape).detach().requires_grad_() for part, shape in zip(cut, shapes, strict=True)]
    with torch.enable_grad():
        hidden = functional.linear(x, parts[0], parts[1]).relu()
        loss = functional.mse_loss(functional.linear(hidden, parts[2], parts[3]), y)
        gradient = torch.cat([each.reshape(-1) for each in torch.autograd.grad(loss, parts)])
    own = torch.empty_like(shard)
    dist.reduce_scatter_tensor(own, gradient)
    own /= world
    mean = (beta1 * mean).add_(own, alpha=1 - beta1)
    square = (beta2 * square).addcmul_(own, own, value=1 - beta2)
    change = mean / (1 - beta1**step) / ((square / (1 - beta2**step)).sqrt_() + epsilon)
    return shard - lr * change, mean, square
