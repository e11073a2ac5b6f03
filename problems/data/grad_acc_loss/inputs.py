"""Inputs of problem 23: five scalars, one of them a micro-batch's mean loss."""

from typing import Any

import torch

from problems.setting import RankSetting

READ_BY_ARGUMENTS = ("has_grad_loss_sum",)


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """loss, grad_normalized_loss, grad_loss_sum [] of the run dtype; local and global token counts [] int64.

    Meaningful: losses in [0.5, 12], counts in [1, M·N] except on one rank of several, which has no tokens and a NaN for its
    loss; both incoming gradients random, the second one absent in every fourth iteration. Upstream's: N(0, 1) losses, equal
    counts, gradients 1 and 0.
    """
    most, world, device = setting.sizes.M * setting.sizes.N, setting.world, setting.device
    if setting.distribution == "upstream":
        return {
            "loss": setting.randn(1)[0],
            "local_valid_tokens": torch.tensor(most, device=device),
            "global_valid_tokens": torch.tensor(most * world, device=device),
            "grad_normalized_loss": torch.ones((), dtype=setting.dtype, device=device),
            "grad_loss_sum": torch.zeros((), dtype=setting.dtype, device=device),
            "has_grad_loss_sum": torch.tensor(1),
        }
    counts = setting.randint(1, most + 1, (world,), shared=True)
    empty = setting.randint(0, world, (1,), shared=True)
    if world > 1:
        counts[empty] = 0
    local = counts[setting.rank]
    loss = setting.rand(1, dtype=torch.float32)[0] * 11.5 + 0.5
    gradients = setting.rand(2, shared=True, dtype=torch.float32) * 1.75 + 0.25
    return {
        "loss": torch.where(local == 0, torch.nan, loss).to(setting.dtype),
        "local_valid_tokens": local,
        "global_valid_tokens": counts.sum(),
        "grad_normalized_loss": gradients[0].to(setting.dtype),
        "grad_loss_sum": gradients[1].to(setting.dtype),
        "has_grad_loss_sum": torch.tensor(int(setting.trial % 4 != 3 or setting.upstream_arguments)),
    }


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The second gradient is None in some iterations."""
    return {"grad_loss_sum": tensors["grad_loss_sum"] if tensors["has_grad_loss_sum"].item() else None}
