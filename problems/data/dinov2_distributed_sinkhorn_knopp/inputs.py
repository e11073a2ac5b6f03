"""Inputs of problem 80: cosine-like teacher scores, some prototypes more popular than others."""

import torch

from problems.setting import RankSetting


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """teacher_output [b, K] float32 and n_masked_patches_tensor [1] int64 = b.

    Upstream: 0.01 N(0, 1), rows on every rank; the answer is then nearly constant. Otherwise 0.25 N(0, 1)
    plus 0.2 N(0, 1) per prototype (the same on all ranks), clipped to [-1, 1], and an eighth fewer rows per
    step of rank mod 3.
    """
    s = setting.sizes
    if setting.distribution == "upstream":
        rows, scores = s.rows, setting.randn(s.rows, s.K) * 0.01
    else:
        rows = s.rows - setting.rank % 3 * (s.rows // 8)
        popular = setting.randn(s.K, shared=True) * 0.2
        scores = (setting.randn(rows, s.K) * 0.25 + popular).clamp(-1, 1)
    return {"teacher_output": scores, "n_masked_patches_tensor": torch.tensor([rows], device=setting.device)}
