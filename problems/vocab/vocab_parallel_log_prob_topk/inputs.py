"""Inputs of problem 82: a vocabulary shard of logits, the tokens' targets, and which filters are on."""

import torch

from problems.setting import RankSetting
from problems.shared import truncated_sampling as sampling

READ_BY_ARGUMENTS = ("mode",)
arguments = sampling.arguments


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """vocab_parallel_logits, target and mode of `truncated_sampling.draw`."""
    return sampling.draw(setting, stride=17, offset=3)
