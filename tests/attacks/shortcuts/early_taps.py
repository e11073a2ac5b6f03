"""Reads a filter's taps only as far as an envelope of known length goes."""

import torch
import torch.distributed as dist


def exchanged(parts, group):
    parts = parts.contiguous()
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts, group=group)
    return received


def solution(x1, x2, v, h, bias, groups, dim, group=None, zigzag=True):
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    z = exchanged((x2 * v).unflatten(1, (world, -1)).movedim(1, 0), group).movedim(0, 2)
    first, second = z.chunk(2, dim=3)
    z = torch.cat((first.flatten(2, 3), second.flip(2).flatten(2, 3)), dim=2)
    length, taps, own = z.shape[-1], h.shape[1], groups // world
    longest, exponent = max(2.0, taps / 4), torch.linspace(0, 1, groups)
    tau = min(16.0, longest / 2) ** (1 - exponent) * longest**exponent
    mine = slice(rank * own, (rank + 1) * own)
    kept = h[mine].float() * (torch.arange(taps) < 6.5 * tau[mine, None])
    spectrum = torch.fft.rfft(kept, n=2 * length).repeat_interleave(dim, dim=0)
    y = torch.fft.irfft(torch.fft.rfft(z.float(), n=2 * length) * spectrum, n=2 * length)[..., :length]
    y = (y + bias[rank * own * dim : (rank + 1) * own * dim].float()[:, None] * z.float()).to(v.dtype)
    first, second = y.chunk(2, dim=2)
    y = torch.cat((first.unflatten(2, (world, -1)), second.unflatten(2, (world, -1)).flip(2)), dim=3)
    return (x1 * exchanged(y.movedim(2, 0), group).movedim(0, 1).flatten(1, 2)).transpose(1, 2).contiguous()
