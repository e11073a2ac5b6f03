"""Distributed DISCO convolution: longitudes against channels, filter, sum over latitudes, and back."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


@torch.no_grad()
def solution(
    x: torch.Tensor,
    psi: torch.Tensor,
    weight: torch.Tensor,
    groups: int,
    nlon_out: int,
    nlon_in: int,
    azimuth_group: dist.ProcessGroup | None = None,
    polar_group: dist.ProcessGroup | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """x [B, C, hl, wl], psi sparse [K, T, hl * nlon_in], weight [O, C/groups, K] -> [B, O, T_p, J_a].

    This rank's tile of the input gives its tile of the output; psi, weight and bias are the rank's own.
    """
    azimuth, polar = dist.get_world_size(azimuth_group), dist.get_world_size(polar_group)
    channels = x.shape[1]
    if azimuth > 1:
        x = _exchange(x, split=1, join=3, total=nlon_in, group=azimuth_group)
    y = _filter(x, psi, nlon_out, nlon_in)
    if polar > 1:
        y = _sum_own_latitudes(y, polar_group)
    if azimuth > 1:
        y = _exchange(y, split=4, join=1, total=channels, group=azimuth_group)
    batch, _, basis, latitudes, longitudes = y.shape
    grouped = y.reshape(batch, groups, -1, basis, latitudes, longitudes)
    mixing = weight.view(groups, -1, *weight.shape[1:])
    out = torch.einsum("bgcktj,gock->bgotj", grouped, mixing).reshape(batch, -1, latitudes, longitudes)
    return (out if bias is None else out + bias.view(-1, 1, 1)).contiguous()


def _parts(count: int, ranks: int) -> list[int]:
    """Shares of `count` items: equal chunks, the rest for the last rank, which never goes without."""
    chunk = -(-count // ranks)
    if count <= chunk * (ranks - 1):
        chunk = count // ranks
    return [chunk] * (ranks - 1) + [count - chunk * (ranks - 1)]


def _exchange(x: torch.Tensor, split: int, join: int, total: int, group: dist.ProcessGroup | None) -> torch.Tensor:
    """Hands out dimension `split`, collects dimension `join`: `total` items on all ranks together."""
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    leaving = [part.contiguous() for part in x.split(_parts(x.shape[split], ranks), dim=split)]
    shape = list(leaving[rank].shape)
    arriving = []
    for count in _parts(total, ranks):
        shape[join] = count
        arriving.append(x.new_empty(shape))
    dist.all_to_all(arriving, leaving, group=group)
    return torch.cat(arriving, dim=join)


def _filter(x: torch.Tensor, psi: torch.Tensor, nlon_out: int, nlon_in: int) -> torch.Tensor:
    """x [B, C, hl, nlon_in] -> [B, C, K, T, nlon_out]: an output longitude sees filters turned by its angle.

    All turned filters together are one sparse matrix; its product with the points [hl * nlon_in, B * C] is a
    weighted sum over bags of points.
    """
    basis, latitudes = psi.shape[:2]
    (k, t, column), value = psi.indices(), psi.values()
    turns = torch.arange(nlon_out, device=x.device).view(-1, 1) * (nlon_in // nlon_out)
    longitude = column % nlon_in
    points = (column - longitude) + (longitude + turns) % nlon_in
    entries = torch.bincount(k * latitudes + t, minlength=basis * latitudes)
    first = entries.cumsum(0) - entries
    bags = torch.arange(nlon_out, device=x.device).view(-1, 1) * value.numel() + first
    table = x.permute(2, 3, 0, 1).reshape(-1, x.shape[0] * x.shape[1])
    y = F.embedding_bag(
        points.view(-1), table, bags.view(-1), mode="sum", per_sample_weights=value.to(table.dtype).repeat(nlon_out)
    )
    return y.view(nlon_out, basis, latitudes, x.shape[0], x.shape[1]).permute(3, 4, 1, 2, 0)


def _sum_own_latitudes(y: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """y [B, C, K, T, J] summed over the polar group in float32 or wider, this rank's latitudes of it."""
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    parts = _parts(y.shape[3], ranks)
    wide = y.to(torch.promote_types(y.dtype, torch.float32))
    if len(set(parts)) > 1:
        wide = wide.contiguous()
        dist.all_reduce(wide, op=dist.ReduceOp.SUM, group=group)
        return wide.split(parts, dim=3)[rank].to(y.dtype)
    leaving = torch.stack(wide.chunk(ranks, dim=3))
    own = torch.empty_like(leaving[0])
    dist.reduce_scatter_tensor(own, leaving, op=dist.ReduceOp.SUM, group=group)
    return own.to(y.dtype)
