"""Inputs of problem 83: those of problem 82, and how many sequence positions go into a chunk."""

from typing import Any

import torch

from problems.setting import RankSetting
from problems.shared import truncated_sampling as sampling

READ_BY_ARGUMENTS = ("mode", "chunk_size")


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """vocab_parallel_logits, target and mode of `truncated_sampling.draw`, and chunk_size."""
    return sampling.draw(setting, stride=19, offset=5) | {"chunk_size": sampling.draw_chunk(setting)}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> tuple[Any, ...]:
    """solution(vocab_parallel_logits, target, tp_group, top_k, top_p, chunk_size)"""
    top_k, top_p = sampling.read_mode(tensors["mode"])
    given = tensors["vocab_parallel_logits"], tensors["target"], setting.groups["world"]
    return (*given, top_k, top_p, int(tensors["chunk_size"]))
