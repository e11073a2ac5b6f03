"""Sums in float32 and rounds once: more accurate than the baseline, so not bit-equal to it."""

import torch
import torch.distributed as dist


def solution(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return torch.stack(parts).float().sum(0).to(tensor.dtype)
