# problem: hyena_conv1d_boundary_exchange
# device: any
"""Halo exchange: only the K-1 samples that a neighbour needs are staged; one barrier, then each reads two tails."""

import torch
import torch.distributed as dist
from torch.nn import functional

from sandbox.kit import symm


@torch.no_grad()
def solution(x: torch.Tensor, weight: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    team = symm.sub(group) if group is not None else symm.connect()
    halo = weight.shape[-1] - 1
    batch, channels, length = x.shape
    half = length // 2
    # Chunks r and 2W-1-r of the sequence lie here; the chunk after one of them needs its last samples.
    tails = torch.stack((x[..., half - halo : half], x[..., length - halo :]))
    peers = team.peers(team.stage(tails))
    team.barrier()
    before = x.new_zeros(2, batch, channels, halo)
    if team.rank > 0:
        before[0] = peers[team.rank - 1][0]
    before[1] = peers[team.rank + 1][1] if team.rank + 1 < team.world else tails[0]
    chunks = torch.cat((before, torch.stack((x[..., :half], x[..., half:]))), dim=-1)
    out = functional.conv1d(chunks.flatten(0, 1), weight, groups=channels)
    return torch.cat(out.chunk(2), dim=-1)
