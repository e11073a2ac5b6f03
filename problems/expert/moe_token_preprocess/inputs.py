"""Inputs of problem 26: a one-hot routing mask with the expert index fastest in memory."""

from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused
from problems.shared.inputs.routing import skewed_choices


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """mask [M, K, E]: slot k of token t chose expert e. float32.

    Meaningful: distinct experts per token, Zipf-like, one expert without tokens, one rank that sends nothing to another.
    Upstream's: K independent uniform choices, which may coincide.
    """
    s = setting.sizes
    if s.E % setting.world:
        raise SizesRefused(f"{setting.world} ranks do not divide E={s.E} experts")
    if setting.distribution == "upstream":
        choices = setting.randint(0, s.E, (s.M, s.K))
    else:
        choices = skewed_choices(setting, s.M, s.E, s.K)[setting.rank]
    mask = torch.zeros(s.M, s.K, s.E, dtype=torch.float32, device=setting.device)
    return {"mask": mask.scatter_(2, choices[..., None], 1)}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The mask is a permuted view [E, K, M]."""
    return {"expert_mask": tensors["mask"].permute(2, 1, 0)}
