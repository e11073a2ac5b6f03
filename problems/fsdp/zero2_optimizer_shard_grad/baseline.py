"""ZeRO stage 2: a reduce-scattered gradient, Adam on a slice, all-gathered parameters."""

import torch
import torch.distributed as dist

from problems.shared.mlp import adam_step, flat_gradient, flatten, split


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

    Returns (W1, b1, W2, b2, exp_avg, exp_avg_sq) of the run dtype after the step: the parameters whole and the same on every
    rank, the moments as this rank's slice [q] of the flat vector W1, b1, W2, b2.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    q = exp_avg_part.numel()
    shapes = [parameter.shape for parameter in (W1, b1, W2, b2)]
    weight = flatten((W1, b1, W2, b2))
    dist.broadcast(weight, src=0)
    parameters = split(weight, shapes)

    mine = slice(rank * q, (rank + 1) * q)
    own_gradient = torch.empty_like(weight[mine])
    gradient = flat_gradient(X_local, y_local, parameters)
    dist.reduce_scatter_tensor(own_gradient, gradient, op=dist.ReduceOp.SUM)
    own_gradient /= world

    updated, mean, square = adam_step(
        weight[mine], exp_avg_part, exp_avg_sq_part, own_gradient, lr, beta1, beta2, eps, step
    )
    gathered = torch.empty_like(weight)
    dist.all_gather_into_tensor(gathered, updated)
    return (*split(gathered, shapes), mean, square)
