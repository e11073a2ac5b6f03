"""Adam and AdamW as single elementwise operations of the run dtype, without master weights."""

import torch


def adam_step(
    weight: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    gradient: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
    weight_decay: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(weight, mean, square) after one step; four tensors of one shape and dtype, none of which is changed.

    step counts from 1. A decay other than 0 is AdamW's: it takes lr * weight_decay of the weight before the step.
    """
    new_mean = (beta1 * mean).add_(gradient, alpha=1 - beta1)
    new_square = (beta2 * square).addcmul_(gradient, gradient, value=1 - beta2)
    unbiased_mean = new_mean / (1 - beta1**step)
    unbiased_square = new_square / (1 - beta2**step)
    updated = weight - lr * (unbiased_mean / (unbiased_square.sqrt_() + eps))
    if weight_decay:
        updated.sub_(weight, alpha=lr * weight_decay)
    return updated, new_mean, new_square
