"""House kernel: ZeRO-2 step; the owner of a slice reduces, updates and stores it in one launch, as in ZeRO-1."""

import torch

from sandbox.kit import symm
from sandbox.kit.blocks.sharded_adam import Adam
from sandbox.kit.blocks.zero_step import zero_step

symm.reserve(4 << 30)  # weights, gradient and results of the largest sizes


def solution(
    X_local: torch.Tensor,
    y_local: torch.Tensor,
    W1: torch.Tensor,
    b1: torch.Tensor,
    W2: torch.Tensor,
    b2: torch.Tensor,
    exp_avg_part: torch.Tensor,
    exp_avg_sq_part: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
) -> tuple[torch.Tensor, ...]:
    """X_local [n, d_in], y_local [n, d_out], W1 [h, d_in], b1 [h], W2 [d_out, h], b2 [d_out]; moments [q] with q·W = P.

    Returns (W1, b1, W2, b2, exp_avg, exp_avg_sq) after the step: parameters whole and the same on every rank, moments as this
    rank's slice [q] of the flat vector W1, b1, W2, b2.
    """
    moments = exp_avg_part, exp_avg_sq_part
    return zero_step((X_local, y_local), (W1, b1, W2, b2), moments, Adam(lr, beta1, beta2, eps, step))
