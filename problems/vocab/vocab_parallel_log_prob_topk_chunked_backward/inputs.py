"""Inputs of problem 84: those of problem 83, and the gradient of the log-probabilities."""

import torch

from problems.setting import RankSetting
from problems.shared import truncated_sampling as sampling

READ_BY_ARGUMENTS = ("mode",)
arguments = sampling.arguments


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """vocab_parallel_logits, target, mode and chunk_size as in problem 83; grad_output [B, S], always bfloat16.

    Logits are flat in some trials, so that every entry of the gradient counts. grad_output rises from -1 to 1 over the flat
    tokens as upstream has it, else it is N(0, 1), the same on every rank.
    """
    s = setting.sizes
    tensors = sampling.draw(setting, stride=19, offset=5, flat=True) | {"chunk_size": sampling.draw_chunk(setting)}
    if setting.distribution == "upstream":
        gradient = torch.linspace(-1, 1, s.B * s.S, device=setting.device).to(torch.bfloat16)
    else:
        gradient = setting.randn(s.B * s.S, shared=True, dtype=torch.bfloat16)
    return tensors | {"grad_output": gradient.view(s.B, s.S)}
