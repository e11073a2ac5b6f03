"""Inputs of problem 83: those of problem 82, and how many sequence positions go into a chunk."""

import torch

from problems.setting import RankSetting
from problems.shared import truncated_sampling as sampling

READ_BY_ARGUMENTS = ("mode",)
arguments = sampling.arguments


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """vocab_parallel_logits, target and mode of `truncated_sampling.draw`, and chunk_size."""
    return sampling.draw(setting, stride=19, offset=5) | {"chunk_size": sampling.draw_chunk(setting)}
