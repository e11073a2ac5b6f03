"""Inputs of problem 24: router logits of some layers and a padding mask."""

import math
from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused

READ_BY_ARGUMENTS = ("masked",)
FAVOURITES = 3
"""Experts that a tenth of the rows choose."""


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """gate_logits [L, M, E] and attention_mask [B, M/B] int64.

    Meaningful: |N(0, 1)| plus a bias per rank, layer and expert, so that every rank has a loss of its own. A tenth of the rows,
    at random places, choose a few of the experts with nearly all of their probability, so a part of the rows gives another
    loss. Every row's choice is clear. A fifth of the positions is padding. Its rows mostly choose one expert, so they change a
    loss that counts them. Every fourth iteration comes without the mask, and each one beside upstream's.
    Upstream's: N(0, 1), never a mask.
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
        logits = logits.abs() + setting.randn(s.L, 1, s.E).abs()  # else small logits of both signs cancel out
        sure = (setting.rand(s.L, s.M, dtype=torch.float32) < 0.1).nonzero(as_tuple=True)
        expert = setting.randint(0, min(s.E, FAVOURITES), (len(sure[0]),))
        logits[(*sure, (expert + setting.trial) % s.E)] += math.log(s.E) + 4
        mask = (setting.rand(s.B, s.M // s.B, dtype=torch.float32) >= 0.2).to(torch.int64)
        mask[0, 0] = 1
        logits[:, mask.view(-1) == 0, (FAVOURITES + setting.trial) % s.E] += math.log(s.E) + 1
        # Equal probabilities at the border could be ranked either way.
        logits.scatter_add_(-1, logits.topk(s.K, dim=-1).indices, torch.full_like(logits, 0.25))
        masked = int(setting.trial % 4 != 3 and not setting.upstream_arguments)
    return {"gate_logits": logits, "attention_mask": mask, "masked": torch.tensor(masked)}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """One layer comes as a tensor, several as a tuple; the mask is None in some iterations."""
    layers = tensors["gate_logits"].unbind(0)
    mask = tensors["attention_mask"] if tensors["masked"].item() else None
    return {"gate_logits": layers if len(layers) > 1 else layers[0], "attention_mask": mask}
