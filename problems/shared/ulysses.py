"""Ulysses sequence parallelism: tensors re-sharded from one dimension to another."""

import torch
import torch.distributed as dist


def reshard(x: torch.Tensor, scatter_dim: int, gather_dim: int, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Cuts x into W parts along scatter_dim, sends part d to rank d, joins what arrives along gather_dim by source rank.

    x has the same shape on all ranks of the group, and W divides its scatter_dim. The result is contiguous and fresh.
    """
    world = dist.get_world_size(group)
    scatter_dim, gather_dim = scatter_dim % x.dim(), gather_dim % x.dim()
    parts = torch.unflatten(x, scatter_dim, (world, -1)).movedim(scatter_dim, 0).contiguous()
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts, group=group)
    return received.movedim(0, gather_dim).flatten(gather_dim, gather_dim + 1).contiguous()


def trim(x: torch.Tensor, dim: int, length: int | None, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The first `length` positions along dim, where length is set and the group's size does not divide it; else x."""
    if not length or length % dist.get_world_size(group) == 0:
        return x
    return x.narrow(dim, 0, min(length, x.shape[dim])).contiguous()


def pad_to_multiple(x: torch.Tensor, dim: int, multiple: int) -> torch.Tensor:
    """x with zeros at the end of dim, up to the next multiple; x itself where nothing is missing."""
    missing = -x.shape[dim] % multiple
    if not missing:
        return x
    shape = list(x.shape)
    shape[dim] = missing
    return torch.cat([x, x.new_zeros(shape)], dim=dim)
