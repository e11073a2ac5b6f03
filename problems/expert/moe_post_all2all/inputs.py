"""Inputs of problem 29: the experts' output rows, the router's weights, and the tables of the dispatch before."""

from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused
from problems.shared.inputs.routing import (
    count_per_expert,
    even_chunks,
    even_splits,
    one_hot_mask,
    skewed_choices,
    splits_of,
    uniform_choices,
)

READ_BY_ARGUMENTS = ("input_splits", "output_splits")


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """expert_outputs [R, N], routing_weights and selected_experts [M, K], and splits, map and permutation of the dispatch.

    Meaningful: skewed routing with an empty expert, splits counted from it, weights in (0, 1) that do not sum to 1.
    Upstream's: uniform routing, equal cuts that have nothing to do with it, weights that sum to 1.
    """
    s, world = setting.sizes, setting.world
    if s.E % world or s.K > s.E:
        raise SizesRefused(f"{world} ranks must divide E={s.E} experts, and K={s.K} may not exceed E")
    if setting.distribution == "upstream":
        if s.K * s.M % world:
            raise SizesRefused(f"upstream's equal splits need {world} ranks to divide K·M={s.K * s.M}")
        choices = uniform_choices(setting, s.M, s.E, s.K)
        send = receive = torch.tensor(even_splits(s.K * s.M, world), device=setting.device)
        arriving = even_chunks(s.K * s.M, s.E, setting.device).view(world, -1)
        weights = setting.randn(s.M, s.K).softmax(dim=1)
    else:
        everyone = skewed_choices(setting, s.M, s.E, s.K)
        choices = everyone[setting.rank]
        send, receive, arriving = splits_of(count_per_expert(everyone, s.E), setting.rank)
        weights = (setting.rand(s.M, s.K, dtype=torch.float32) * 0.9 + 0.05).to(setting.dtype)
    routing_map = one_hot_mask(choices, s.E, torch.bool).any(dim=1)
    return {
        "expert_outputs": setting.randn(int(receive.sum()), s.N),
        "routing_weights": weights,
        "selected_experts": choices.sort(dim=1).values,
        "input_splits": send,
        "output_splits": receive,
        "per_local_expert": arriving,
        "routing_map": routing_map,
        "permutation": routing_map.nonzero()[:, 1],
    }


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> tuple[Any, ...]:
    """solution(expert_outputs, routing_weights, selected_experts, num_experts, splits, tables, shape, group)"""
    s = setting.sizes
    return (
        tensors["expert_outputs"],
        tensors["routing_weights"],
        tensors["selected_experts"],
        s.E,
        tensors["input_splits"].tolist(),
        tensors["output_splits"].tolist(),
        tensors["per_local_expert"],
        tensors["routing_map"],
        tensors["permutation"],
        torch.Size((s.M, s.N)),
        None,
    )
