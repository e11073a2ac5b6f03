"""Inputs of problem 48: the rows of this rank's FSDP index and its blocks of three weight matrices."""

import torch

from problems.setting import RankSetting


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """x_local [B_f, D], the same within a TP group; W1_shard, W2_shard [D/n_fsdp, F_t], W3_shard [F_t, D/n_fsdp], own.

    All N(0, 1) as upstream has it; the meaningful weights are divided by sqrt(fan_in).
    """
    s = setting.sizes
    rows = setting.randn(s.n_fsdp, s.B_f, s.D, shared=True)
    inner, outer = (1.0, 1.0) if setting.distribution == "upstream" else (s.D**-0.5, s.F**-0.5)
    width = s.D // s.n_fsdp
    return {
        "x_local": rows[setting.rank // s.n_tp].clone(),
        "W1_shard": setting.randn(width, s.F_t) * inner,
        "W2_shard": setting.randn(width, s.F_t) * inner,
        "W3_shard": setting.randn(s.F_t, width) * outer,
    }
