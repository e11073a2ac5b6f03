"""Takes exponentials without subtracting the maximum: infinite from logits of 89 on."""

import torch
import torch.distributed as dist


def solution(logits, target, group=None):
    columns = logits.shape[-1]
    column = target - dist.get_rank(group) * columns
    elsewhere = (column < 0) | (column >= columns)
    picked = logits.gather(-1, column.masked_fill(elsewhere, 0)[..., None])[..., 0].float().masked_fill(elsewhere, 0)
    both = torch.stack([picked, logits.float().exp().sum(-1)])
    dist.all_reduce(both, group=group)
    return (both[1].log() - both[0]).to(logits.dtype)
