"""Inputs of problem 79: clustered unit vectors whose scalar products are exact, whatever the order of
additions.
"""

from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused


def _unit(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.norm(dim=-1, keepdim=True)


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """test [Q, D], train_T [D, T] of the run dtype, labels [1, T] int64.

    Upstream: unit-normalised bfloat16 noise, labels (global column) mod 1000. Otherwise 64 clusters shared by
    all ranks, and entries rounded to multiples of 1/256, in float32 of 1/4096: products then add up exactly in
    float32, so that every correct kernel sees the same similarities. Labels are mod 1000 in every second trial and the global
    column (unique) in the others.
    """
    s = setting.sizes
    if s.k > s.T:
        raise SizesRefused(f"k={s.k} neighbours need at least as many training features per rank, not {s.T}")
    column = setting.rank * s.T + torch.arange(s.T, device=setting.device)
    if setting.distribution == "upstream":
        test = _unit(setting.randn(s.Q, s.D, dtype=torch.bfloat16))
        train = _unit(setting.randn(s.T, s.D, dtype=torch.bfloat16))
        labels = column % 1000
    else:
        centres = _unit(setting.randn(64, s.D, shared=True, dtype=torch.float32))

        # In float32 a bfloat16 is not enough for an entry. Vectors are a little shorter than 1 there, so that every sum of
        # their products is a multiple of 2^-24 below 1.
        steps, length = (4096, 0.98) if setting.dtype == torch.float32 else (256, 1.0)

        def clustered(rows: int) -> torch.Tensor:
            near = centres[setting.randint(0, 64, (rows,))]
            noise = setting.randn(rows, s.D, dtype=torch.float32) * s.D**-0.5
            return (_unit(near + noise) * length * steps).round().clamp(1 - steps, steps - 1) / steps

        test, train = clustered(s.Q), clustered(s.T)
        labels = column % 1000 if setting.trial % 2 else column
    return {
        "test": test.to(setting.dtype),
        "train_T": train.to(setting.dtype).t().contiguous(),
        "labels": labels[None],
    }


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> tuple[Any, ...]:
    """solution(test_features_rank, train_features_rank_T, train_labels_rank, max_k, group)"""
    return tensors["test"], tensors["train_T"], tensors["labels"], setting.sizes.k, setting.groups["world"]


def canonical(outputs: Any, setting: RankSetting) -> Any:
    """Labels in an order that does not depend on ties; -1 stands for those that tie for the last place."""
    if type(outputs) is not tuple or len(outputs) != 2 or any(type(x) is not torch.Tensor for x in outputs):
        return outputs
    similarities, labels = outputs
    if similarities.dim() != 2 or similarities.shape != labels.shape or not similarities.numel():
        return outputs
    if setting.distribution == "upstream":
        near = 4 * torch.finfo(similarities.dtype).eps * similarities[:, -1:].abs()
        settled = torch.where(similarities <= similarities[:, -1:] + near, -1, labels)
        return similarities, settled.sort(dim=1).values
    ascending, by_label = labels.sort(dim=1)
    order = similarities.gather(1, by_label).argsort(dim=1, descending=True, stable=True)
    last_place = similarities == similarities[:, -1:]
    return similarities, torch.where(last_place, -1, ascending.gather(1, order))
