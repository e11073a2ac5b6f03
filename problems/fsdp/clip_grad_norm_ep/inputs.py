"""Inputs of problem 22: dense and expert gradients of different scales."""

from typing import Any

import torch

from problems.setting import RankSetting, grid
from problems.shared.inputs.dense import enlarge_few


def layout(world: int) -> dict[str, list[list[int]]]:
    """Experts over blocks of E = max(1, W // 2) consecutive ranks, their replicas E apart; no groups where
    that is no grid.
    """
    experts = max(1, world // 2)
    if experts == 1 or world % experts:
        return {"ep": [], "ep_fsdp": []}
    return grid(world, experts, "ep", "ep_fsdp")


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """dense, expert [T, M, N]: T gradients each, N(0, 1) times 2^u with u uniform in [-3, 3]; max_norm []
    float64.

    A few elements of each, at random places, have half of its square sum, so that no sample gives the norm.
    max_norm is 1, and in one call of four so large that nothing is clipped. Upstream: N(0, 1) and 1.
    """
    s = setting.sizes
    tensors = {"dense": setting.randn(s.T, s.M, s.N), "expert": setting.randn(s.T, s.M, s.N)}
    limit = 1.0
    if setting.distribution != "upstream":
        for name, gradients in tensors.items():
            for gradient in gradients:
                enlarge_few(gradient, setting)
            exponent = setting.rand(s.T, 1, 1, dtype=torch.float32) * 6 - 3
            tensors[name] = (gradients * torch.exp2(exponent)).to(setting.dtype)
        limit = 1e30 if setting.trial % 4 == 3 and not setting.upstream_arguments else 1.0
    return tensors | {"max_norm": torch.tensor(limit, dtype=torch.float64, device=setting.device)}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The gradients in lists, and replicas of experts: the world where there is no grid."""
    lists = {"non_ep_grad_tensors": "dense", "ep_grad_tensors": "expert"}
    replicas = setting.groups["world" if setting.groups["ep"] is None else "ep_fsdp"]
    return {name: list(tensors[drawn].unbind(0)) for name, drawn in lists.items()} | {"ep_fsdp_group": replicas}
