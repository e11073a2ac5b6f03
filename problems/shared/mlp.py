"""The two-layer ReLU perceptron of the data-parallel training steps: its gradient, its flat vector, its inputs, and Adam.

Sizes, as derived in the problems' problem.toml: n rows a rank, d_in -> h -> d_out, P parameters. The flat order is W1, b1,
W2, b2, each row-major.
"""

from collections.abc import Sequence

import torch
from torch.nn import functional

from problems.setting import RankSetting

PROBE_ROWS = 256
UPSTREAM_RATE, MEANINGFUL_RATE = 1e-3, 0.5


def shapes(setting: RankSetting) -> list[tuple[int, ...]]:
    """Of W1, b1, W2, b2."""
    s = setting.sizes
    return [(s.h, s.d_in), (s.h,), (s.d_out, s.h), (s.d_out,)]


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


def unit(setting: RankSetting) -> float:
    """The scale of meaningful weights, so that one step at the learning rate in use moves them visibly.

    1, and less beside upstream's iterations. Features are divided by it and targets multiplied, so that all other ratios stay.
    """
    return UPSTREAM_RATE / MEANINGFUL_RATE if setting.beside_upstream else 1.0


def draw_batch(setting: RankSetting) -> dict[str, torch.Tensor]:
    """X_local [n, d_in] and y_local [n, d_out], standard normal, of this rank alone.

    The meaningful targets are shifted by the rank, so that no rank's own gradient resembles the average.
    """
    s = setting.sizes
    features, targets = setting.randn(s.n, s.d_in), setting.randn(s.n, s.d_out)
    if setting.distribution != "upstream":
        features /= unit(setting)
        targets = (targets + setting.rank) * unit(setting)
    return {"X_local": features, "y_local": targets}


def draw_parameters(setting: RankSetting, shared: bool) -> list[torch.Tensor]:
    """W1, b1, W2, b2: standard normal as upstream has it, else scaled by 1/sqrt(fan_in), biases by 0.1."""
    drawn = [setting.randn(*shape, shared=shared) for shape in shapes(setting)]
    if setting.distribution == "upstream":
        return drawn
    s = setting.sizes
    scales = (s.d_in**-0.5, 0.1, s.h**-0.5, 0.1)
    return [tensor * (scale * unit(setting)) for tensor, scale in zip(drawn, scales, strict=True)]


def gradient_scale(setting: RankSetting, parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """[P] float32, the same on every rank: about the RMS of the averaged gradient of the tensor an element belongs to.

    Taken from a batch of its own with the law of the real one (at most 256 rows a rank), so that the Adam state drawn from
    it fits the gradients that will be met.
    """
    s = setting.sizes
    rows = min(s.n, PROBE_ROWS)
    features = setting.randn(setting.world * rows, s.d_in, shared=True) / unit(setting)
    targets = setting.randn(setting.world * rows, s.d_out, shared=True)
    ranks = torch.arange(setting.world, device=setting.device).repeat_interleave(rows)
    targets = (targets + ranks[:, None].to(targets.dtype)) * unit(setting)
    gradient = flat_gradient(features, targets, parameters).to(torch.float32)
    parts = split(gradient, shapes(setting))
    return torch.cat([part.square().mean().sqrt().expand(part.numel()) for part in parts])


def draw_moments(
    setting: RankSetting, scale: torch.Tensor, shared: bool, mean_factor: float = 0.3, square_factor: float = 0.01
) -> tuple[torch.Tensor, torch.Tensor]:
    """Adam's flat (mean, square) [P] of the run dtype: mean_factor s N(0, 1), square_factor s² U(0.5, 1.5)."""
    count = scale.numel()
    mean = mean_factor * scale * setting.randn(count, shared=shared, dtype=torch.float32)
    square = square_factor * scale**2 * (0.5 + setting.rand(count, shared=shared, dtype=torch.float32))
    return mean.to(setting.dtype), square.to(setting.dtype)


def draw_step(setting: RankSetting, meaningful: int) -> torch.Tensor:
    """The step counter, [1] int64: upstream's and beside it 1..7 by trial, else `meaningful`..`meaningful` + 4."""
    trial = setting.trial
    step = 1 + trial % 7 if setting.upstream_arguments else meaningful + trial % 5
    return torch.tensor([step], dtype=torch.int64, device=setting.device)


def hyperparameters(setting: RankSetting) -> tuple[float, float, float, float]:
    """(lr, beta1, beta2, eps): upstream's, or a rate at which one step moves the weights visibly."""
    return (UPSTREAM_RATE if setting.distribution == "upstream" else MEANINGFUL_RATE), 0.9, 0.999, 1e-8


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
