"""Inputs of problem 62: a tile of the sphere, the filters that act on its latitudes, and the mixing weight."""

from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused, grid


def layout(world: int) -> dict[str, list[list[int]]]:
    """rank = p * az + a: azimuth groups are az neighbours, polar groups the ranks with equal a."""
    return grid(world, 2 if world % 2 == 0 else 1, "azimuth", "polar")


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x [B, C, hl, wl], index [3, nnz] int64 and value [nnz] of psi, weight [O, C/groups, K], bias [O].

    Upstream: filters with 4 scattered entries a row, and filters, weight and bias of its own on every rank.
    Otherwise psi is the slice of one global filter bank near the diagonal, and weight and bias are the same
    everywhere, except in every fourth trial: a rank applies its own.
    """
    s = setting.sizes
    if s.C % s.groups or s.O % s.groups:
        raise SizesRefused(f"C={s.C} and O={s.O} must divide by groups={s.groups}")
    single = setting.replace(dtype=torch.float32)
    upstream = setting.distribution == "upstream"
    shared = not upstream and setting.trial % 4 != 0
    x = single.randn(s.B, s.C, s.hl, s.wl)
    weight = single.randn(s.O, s.C // s.groups, s.K, shared=shared)
    bias = single.randn(s.O, shared=shared)
    if not upstream:
        weight = weight / (s.C // s.groups * s.K) ** 0.5
    index, value = _scattered(single) if upstream else _banded(single)
    return {"x": x, "index": index, "value": value, "weight": weight, "bias": bias}


def _scattered(setting: RankSetting) -> tuple[torch.Tensor, torch.Tensor]:
    """Upstream's filters: entry e of (k, t) at local latitude t - p*hl mod hl, longitude t + e*(k+1)."""
    s, device = setting.sizes, setting.device
    value = 0.05 * setting.randn(s.K, s.T, s.span)
    k = torch.arange(s.K, device=device).view(-1, 1, 1)
    t = torch.arange(s.T, device=device).view(1, -1, 1)
    e = torch.arange(s.span, device=device)
    latitude = (t - setting.rank // s.az * s.hl) % s.hl
    column = latitude * s.nlon_in + (t + e * (k + 1)) % s.nlon_in
    return _coalesced(setting, k.expand_as(column), t.expand_as(column), column, value)


def _banded(setting: RankSetting) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's latitudes of a global filter bank: span x span entries a row, near the row's latitude."""
    s, device = setting.sizes, setting.device
    shape = (s.K, s.T, s.span, s.span)
    value = setting.randn(*shape, shared=True) / s.span
    turn = setting.randint(0, s.nlon_in, (s.K, s.T, 1, 1), shared=True)
    k = torch.arange(s.K, device=device).view(-1, 1, 1, 1).expand(shape)
    t = torch.arange(s.T, device=device).view(1, -1, 1, 1).expand(shape)
    step = torch.arange(s.span, device=device)
    latitude = (t - s.span // 2).clamp(0, s.T - s.span) + step.view(-1, 1)
    local = latitude - setting.rank // s.az * s.hl
    mine = (local >= 0) & (local < s.hl)
    column = local * s.nlon_in + (turn + step) % s.nlon_in
    return _coalesced(setting, k[mine], t[mine], column[mine], value[mine])


def _coalesced(
    setting: RankSetting, k: torch.Tensor, t: torch.Tensor, column: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Entries in the order of a coalesced sparse tensor: index [3, nnz], value [nnz]."""
    s = setting.sizes
    key = ((k * s.T + t) * (s.hl * s.nlon_in) + column).reshape(-1)
    order = key.argsort()
    index = torch.stack([k.reshape(-1)[order], t.reshape(-1)[order], column.reshape(-1)[order]])
    return index, value.reshape(-1)[order]


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The filters as a sparse tensor."""
    s = setting.sizes
    size, given = (s.K, s.T, s.hl * s.nlon_in), (tensors["index"], tensors["value"])
    return {"psi": torch.sparse_coo_tensor(*given, size, check_invariants=False, is_coalesced=True)}
