"""Inputs of problem 24: router logits of some layers and a padding mask."""

from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused

READ_BY_ARGUMENTS = ("masked",)


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """gate_logits [L, M, E] and attention_mask [B, M/B] int64.

    Meaningful: N(0, 1) plus a bias per rank, layer and expert, so that every rank has a loss of its own; a fifth of the
    positions is padding, and every fourth iteration comes without the mask. Upstream's: N(0, 1), never a mask.
    """
    s = setting.sizes
    if s.M % s.B or s.K > s.E:
        raise SizesRefused(
            f"M={s.M} tokens must divide into B={s.B} sequences, and K={s.K} experts exist among E={s.E}"
        )
    logits = setting.randn(s.L, s.M, s.E)
    mask = torch.ones(s.B, s.M // s.B, dtype=torch.int64, device=setting.device)
    masked = 0
    if setting.distribution != "upstream":
        logits += setting.randn(s.L, 1, s.E)
        mask = (setting.rand(s.B, s.M // s.B, dtype=torch.float32) >= 0.2).to(torch.int64)
        mask[0, 0] = 1
        masked = int(setting.trial % 4 != 3)
    return {"gate_logits": logits, "attention_mask": mask, "masked": torch.tensor(masked)}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> tuple[Any, ...]:
    """solution(gate_logits, num_experts, top_k, attention_mask); one layer comes as a tensor, several as a tuple."""
    s = setting.sizes
    layers = tensors["gate_logits"].unbind(0)
    mask = tensors["attention_mask"] if tensors["masked"].item() else None
    return layers[0] if s.L == 1 else layers, s.E, s.K, mask
