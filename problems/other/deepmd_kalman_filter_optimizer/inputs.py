"""Inputs of problem 63: covariance blocks, Jacobian columns and weights of one rank."""

from typing import Any

import torch

from problems.setting import RankSetting


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """H{i}, w{i} [n_i, 1], P{i} [n_i, n_i], error [], kalman_lambda [], all float64, for L blocks.

    Upstream: n_i = n, P = I, H ~ 0.01 N(0, 1), error ~ N(0, 1): such a step hardly changes anything.
    Otherwise blocks differ in size, in an order that each rank draws for every iteration, with the same total.
    P = a aᵀ/n_i + I/2, H ~ 0.3 N(0, 1), error ~ 5 N(0, 1) and lam is uniform in [0.95, 1). Sizes and lam are upstream's
    beside its iterations.
    """
    s = setting.sizes
    tensors: dict[str, torch.Tensor] = {}
    upstream = setting.distribution == "upstream"
    first = int(setting.randint(0, s.L, (1,)))
    for block in range(s.L):
        if upstream:
            n = s.n
            covariance = torch.eye(n, dtype=torch.float64, device=setting.device)
        else:
            n = s.n if setting.beside_upstream else _uneven(s.n, s.L, block + first)
            a = setting.randn(n, 1, dtype=torch.float64)
            covariance = a @ a.T / n
            covariance.diagonal().add_(0.5)
        tensors[f"H{block}"] = (0.01 if upstream else 0.3) * setting.randn(n, 1, dtype=torch.float64)
        tensors[f"w{block}"] = setting.randn(n, 1, dtype=torch.float64)
        tensors[f"P{block}"] = covariance
    tensors["error"] = (1.0 if upstream else 5.0) * setting.randn(1, dtype=torch.float64).view(())
    lam = torch.full((1,), 0.98, dtype=torch.float64, device=setting.device)
    if not setting.upstream_arguments:
        lam = 0.95 + 0.05 * setting.rand(1, shared=True, dtype=torch.float64)
    tensors["kalman_lambda"] = lam.view(())
    return tensors


def _uneven(mean: int, blocks: int, place: int) -> int:
    """A size within an eighth of the mean; `blocks` places in a row add up to blocks * mean."""
    return mean + (2 * (place % blocks) - (blocks - 1)) * (mean // (8 * blocks))


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The blocks in lists, which are new for every call."""
    lists = {"H": "H", "weights": "w", "P": "P"}
    return {name: [tensors[f"{drawn}{i}"] for i in range(setting.sizes.L)] for name, drawn in lists.items()}
