"""Data-parallel training step: rank 0's state everywhere, one flat gradient all-reduce, the same Adam on every rank."""

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
    exp_avg_W1: torch.Tensor,
    exp_avg_b1: torch.Tensor,
    exp_avg_W2: torch.Tensor,
    exp_avg_b2: torch.Tensor,
    exp_avg_sq_W1: torch.Tensor,
    exp_avg_sq_b1: torch.Tensor,
    exp_avg_sq_W2: torch.Tensor,
    exp_avg_sq_b2: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
) -> tuple[torch.Tensor, ...]:
    """X_local [n, d_in], y_local [n, d_out], W1 [h, d_in], b1 [h], W2 [d_out, h], b2 [d_out]; moments like the parameters.

    Returns 12 tensors of the run dtype, the same on every rank: the updated W1, b1, W2, b2, then their first moments, then
    their second moments.
    """
    parameters = (W1, b1, W2, b2)
    shapes = [parameter.shape for parameter in parameters]
    means = (exp_avg_W1, exp_avg_b1, exp_avg_W2, exp_avg_b2)
    squares = (exp_avg_sq_W1, exp_avg_sq_b1, exp_avg_sq_W2, exp_avg_sq_b2)
    state = flatten((*parameters, *means, *squares))
    dist.broadcast(state, src=0)
    weight, mean, square = state.chunk(3)

    gradient = flat_gradient(X_local, y_local, split(weight, shapes))
    dist.all_reduce(gradient, op=dist.ReduceOp.SUM)
    gradient /= dist.get_world_size()

    updated = adam_step(weight, mean, square, gradient, lr, beta1, beta2, eps, step)
    return tuple(part for flat in updated for part in split(flat, shapes))
