"""Inputs of problem 53: parameter shards of very different size on the ranks, with their histories of maxima."""

import torch

from problems.setting import RankSetting
from problems.shared.delayed_scaling import draw_scaled


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """flat_param_shard [P] of the run dtype and amax_history [16] bfloat16, both own; see `draw_scaled`."""
    shard, history = draw_scaled(setting, setting.sizes.P)
    return {"flat_param_shard": shard, "amax_history": history}
