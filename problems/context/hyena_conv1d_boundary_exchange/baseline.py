"""Short causal depthwise convolution over a zigzag-sharded sequence: fetch two halos, then convolve two
chunks.
"""

import torch
import torch.distributed as dist
from torch.nn import functional


@torch.no_grad()
def solution(x: torch.Tensor, weight: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """x [B, D, 2C], weight [D, 1, K] -> [B, D, 2C].

    Of 2W chunks this rank r holds chunk r, then chunk 2W-1-r. Each is convolved causally with this rank's own
    weight, tap K-1 on the current sample; the K-1 samples before a chunk come from the rank that holds the
    chunk before it.
    """
    pg = group or dist.group.WORLD
    world, rank = dist.get_world_size(pg), dist.get_rank(pg)
    halo = weight.shape[-1] - 1
    first, second = x.chunk(2, dim=-1)
    first_tail = first[..., first.shape[-1] - halo :].contiguous()
    second_tail = second[..., second.shape[-1] - halo :].contiguous()
    before_first = torch.zeros_like(first_tail)
    before_second = first_tail if rank == world - 1 else torch.empty_like(first_tail)

    messages = []
    if rank > 0:
        previous = dist.get_global_rank(pg, rank - 1)
        messages.append(dist.P2POp(dist.isend, second_tail, previous, pg))
        messages.append(dist.P2POp(dist.irecv, before_first, previous, pg))
    if rank < world - 1:
        following = dist.get_global_rank(pg, rank + 1)
        messages.append(dist.P2POp(dist.isend, first_tail, following, pg))
        messages.append(dist.P2POp(dist.irecv, before_second, following, pg))
    if messages and halo:
        for work in dist.batch_isend_irecv(messages):
            work.wait()

    extended = torch.cat((torch.cat((before_first, first), dim=-1), torch.cat((before_second, second), dim=-1)))
    convolved = functional.conv1d(extended, weight, groups=x.shape[1])
    return torch.cat(convolved.chunk(2), dim=-1)
