"""Inputs of problem 29: the experts' output rows, the router's weights, and the tables of the dispatch before."""

from typing import Any

import torch

from problems.setting import RankSetting
from problems.shared.inputs.routing import dispatch, one_hot_mask


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """expert_outputs [R, N], routing_weights and selected_experts [M, K], and splits, map and permutation of the dispatch.

    Meaningful: skewed routing with an empty expert, splits counted from it, weights in (0, 1) that do not sum to 1.
    Upstream's: uniform routing, equal cuts that have nothing to do with it, weights that sum to 1.
    """
    s, (choices, send, receive, arriving) = setting.sizes, dispatch(setting)
    if setting.distribution == "upstream":
        weights = setting.randn(s.M, s.K).softmax(dim=1)
    else:
        weights = (setting.rand(s.M, s.K, dtype=torch.float32) * 0.9 + 0.05).to(setting.dtype)
    routing_map = one_hot_mask(choices, s.E, torch.bool).any(dim=1)
    return {
        "expert_outputs": setting.randn(int(receive.sum()), s.N),
        "routing_weights": weights,
        "selected_experts": choices.sort(dim=1).values,
        "input_splits": send,
        "output_splits": receive,
        "num_global_tokens_per_local_expert": arriving,
        "routing_map": routing_map,
        "local_input_permutation_mapping": routing_map.nonzero()[:, 1],
    }


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The shape of the result."""
    return {"org_hidden_states_shape": torch.Size((setting.sizes.M, setting.sizes.N))}
