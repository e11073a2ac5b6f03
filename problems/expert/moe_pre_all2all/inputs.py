"""Inputs of problem 28: tokens, a routing mask, and the splits that follow from it."""

import torch

from problems.setting import RankSetting
from problems.shared.inputs.routing import dispatch, one_hot_mask


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """hidden_states [M, N]; expert_mask [E, K, M] float32; splits [W] and rows by source and local expert [W, E_l] int64.

    Meaningful: skewed routing with an empty expert, splits counted from it. Upstream's: uniform routing, and equal cuts that
    have nothing to do with it.
    """
    s, (choices, send, receive, arriving) = setting.sizes, dispatch(setting)
    return {
        "hidden_states": setting.randn(s.M, s.N),
        "expert_mask": one_hot_mask(choices, s.E, torch.float32),
        "input_splits": send,
        "output_splits": receive,
        "num_global_tokens_per_local_expert": arriving,
    }
