"""Inputs of problem 82: a vocabulary shard of logits, the tokens' targets, and which filters are on."""

from typing import Any

import torch

from problems.setting import RankSetting
from problems.shared import truncated_sampling as sampling

READ_BY_ARGUMENTS = ("mode",)


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """vocab_parallel_logits, target and mode of `truncated_sampling.draw`."""
    return sampling.draw(setting, stride=17, offset=3)


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> tuple[Any, ...]:
    """solution(vocab_parallel_logits, target, tp_group, top_k, top_p)"""
    top_k, top_p = sampling.read_mode(tensors["mode"])
    return tensors["vocab_parallel_logits"], tensors["target"], setting.groups["world"], top_k, top_p
