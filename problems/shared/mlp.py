"""The two-layer ReLU perceptron of the data-parallel training steps: its gradient, its flat vector, and Adam.

Sizes, as derived in the problems' problem.toml: n rows a rank, d_in -> h -> d_out, P parameters. The flat order is W1, b1,
W2, b2, each row-major.
"""

from collections.abc import Sequence

import torch
from torch.nn import functional


def flatten(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """One new vector of all elements in order."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def split(flat: torch.Tensor, like: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Views of a flat vector with the given shapes, one after another."""
    counts = [torch.Size(shape).numel() for shape in like]
    return [part.view(*shape) for part, shape in zip(torch.split(flat, counts), like, strict=True)]


def flat_gradient(features: torch.Tensor, targets: torch.Tensor, parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """Gradient [P] of the mean squared error with respect to (W1, b1, W2, b2).

    features [n, d_in] and targets [n, d_out]; the mean goes over all n * d_out elements.
    """
    with torch.enable_grad():
        w1, b1, w2, b2 = (parameter.detach().requires_grad_() for parameter in parameters)
        hidden = functional.linear(features, w1, b1).relu()
        loss = functional.mse_loss(functional.linear(hidden, w2, b2), targets)
        return flatten(torch.autograd.grad(loss, (w1, b1, w2, b2)))


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
    """(weight, mean, square) after one step of Adam, without master weights.

    The four tensors, of one shape and dtype, are not changed. step counts from 1. A decay other than 0 is AdamW's: it takes
    lr * weight_decay of the weight before the step.
    """
    new_mean = (beta1 * mean).add_(gradient, alpha=1 - beta1)
    new_square = (beta2 * square).addcmul_(gradient, gradient, value=1 - beta2)
    unbiased_mean = new_mean / (1 - beta1**step)
    unbiased_square = new_square / (1 - beta2**step)
    updated = weight - lr * (unbiased_mean / (unbiased_square.sqrt_() + eps))
    if weight_decay:
        updated.sub_(weight, alpha=lr * weight_decay)
    return updated, new_mean, new_square
