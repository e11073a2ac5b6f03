"""Inputs of problem 28: tokens, a routing mask, and the splits that follow from it."""

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
    """hidden_states [M, N]; expert_mask [E, K, M] float32; splits [W] and per_local_expert [W, E_l] int64.

    Meaningful: skewed routing with an empty expert, splits counted from it. Upstream's: uniform routing, and equal cuts that
    have nothing to do with it.
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
    else:
        everyone = skewed_choices(setting, s.M, s.E, s.K)
        choices = everyone[setting.rank]
        send, receive, arriving = splits_of(count_per_expert(everyone, s.E), setting.rank)
    return {
        "hidden_states": setting.randn(s.M, s.N),
        "expert_mask": one_hot_mask(choices, s.E, torch.float32),
        "input_splits": send,
        "output_splits": receive,
        "per_local_expert": arriving,
    }


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> tuple[Any, ...]:
    """solution(hidden_states, expert_mask, num_experts, input_splits, output_splits, num_global_tokens_.., group)"""
    return (
        tensors["hidden_states"],
        tensors["expert_mask"],
        setting.sizes.E,
        tensors["input_splits"].tolist(),
        tensors["output_splits"].tolist(),
        tensors["per_local_expert"],
        None,
    )


def capacity(setting: RankSetting) -> int:
    """Rows, the map, the permutation, the shape.

    Every rank favours experts of its own, so no rank comes near four times the mean number of rows.
    """
    s = setting.sizes
    rows = min(setting.world, 4) * s.M * s.K
    return rows * s.N * setting.dtype.itemsize + 8 * s.E * s.M + 8 * s.K * s.M + 64
