"""Inputs of training steps of a two-layer perceptron with Adam; `draw` is that of the ZeRO stages 1 and 2."""

from collections.abc import Sequence

import torch

from problems.setting import RankSetting, SizesRefused
from problems.shared.mlp import flat_gradient, split

PROBE_ROWS = 256
UPSTREAM_RATE, MEANINGFUL_RATE = 1e-3, 0.5
NAMES = ("W1", "b1", "W2", "b2")


def shapes(setting: RankSetting) -> list[tuple[int, ...]]:
    """Of W1, b1, W2, b2."""
    s = setting.sizes
    return [(s.h, s.d_in), (s.h,), (s.d_out, s.h), (s.d_out,)]


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
    """The step counter, [] int64: upstream's and beside it 1..7 by trial, else `meaningful`..`meaningful` + 4."""
    trial = setting.trial
    step = 1 + trial % 7 if setting.upstream_arguments else meaningful + trial % 5
    return torch.tensor(step, dtype=torch.int64, device=setting.device)


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, float]:
    """Adam's numbers: upstream's, or a rate at which one step moves the weights visibly."""
    rate = UPSTREAM_RATE if setting.distribution == "upstream" else MEANINGFUL_RATE
    return {"lr": rate, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}


def require_equal_slices(setting: RankSetting) -> None:
    """Raises SizesRefused unless the world divides the number of parameters."""
    s = setting.sizes
    if s.P % setting.world:
        raise SizesRefused(
            f"no hidden size from {s.h0} on makes the parameter count divisible by {setting.world} ranks; "
            "choose another N or another number of ranks"
        )


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """X_local, y_local, W1, b1, W2, b2, exp_avg_part and exp_avg_sq_part [q], step.

    Upstream: standard-normal weights on rank 0, zeros elsewhere, moments zero. Meaningful: weights scaled by fan-in on rank
    0 and other values elsewhere, and slices of one Adam state that fits the gradients.
    """
    require_equal_slices(setting)
    s = setting.sizes
    tensors = draw_batch(setting)
    rank0 = draw_parameters(setting, shared=True)
    if setting.distribution == "upstream":
        weights = rank0 if setting.rank == 0 else [torch.zeros_like(weight) for weight in rank0]
        mean = torch.zeros(s.q, dtype=setting.dtype, device=setting.device)
        square = torch.zeros_like(mean)
    else:
        weights = rank0 if setting.rank == 0 else draw_parameters(setting, shared=False)
        slice_scale = gradient_scale(setting, rank0)[setting.rank * s.q : (setting.rank + 1) * s.q]
        mean, square = draw_moments(setting, slice_scale, shared=False)
    tensors |= dict(zip(NAMES, weights, strict=True))
    return tensors | {"exp_avg_part": mean, "exp_avg_sq_part": square, "step": draw_step(setting, meaningful=3)}
