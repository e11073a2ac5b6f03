# problem: conv2d_boundary_exchange
"""Convolves in float32 and rounds once: more accurate than the baseline, so not bit-equal to it."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def solution(x, weight, bias, stride=1, padding=1, group=None):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    borders = torch.stack([x[:, :, :padding], x[:, :, -padding:]])
    everyone = borders.new_zeros(world + 1, *borders.shape)  # the last one is zero: what lies outside the image
    dist.all_gather_into_tensor(everyone[:world], borders, group=group)
    above, below = everyone[rank - 1, 1], everyone[rank + 1, 0]
    image = torch.cat([above, x, below], dim=2).float()
    exact = F.conv2d(image, weight.float(), None if bias is None else bias.float(), stride, (0, padding))
    return exact.to(x.dtype)
