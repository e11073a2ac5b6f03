"""2-D convolution of an image in strips: gather everybody's border rows, extend the own strip, convolve."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


@torch.no_grad()
def solution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: int = 1,
    padding: int = 1,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """x [B, C, h, w], weight [Co, C, k, k], bias [Co] -> this rank's strip [B, Co, h_out, w_out].

    The strip is extended by `padding` rows of either neighbour, by zeros at the ends of the image.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    if world == 1 or padding == 0:
        return F.conv2d(x, weight, bias, stride, padding)
    borders = torch.stack([x[:, :, :padding], x[:, :, -padding:]])
    everyone = borders.new_empty(world, *borders.shape)
    dist.all_gather_into_tensor(everyone, borders, group=group)
    outside = torch.zeros_like(borders[0])
    above = everyone[rank - 1, 1] if rank > 0 else outside
    below = everyone[rank + 1, 0] if rank < world - 1 else outside
    return F.conv2d(torch.cat([above, x, below], dim=2), weight, bias, stride, (0, padding))
