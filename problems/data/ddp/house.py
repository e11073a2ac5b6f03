"""House kernel: data-parallel step; each rank updates a slice of rank 0's state for all ranks."""

import torch

from sandbox.kit import symm
from sandbox.kit.blocks.fan_out import fan_out
from sandbox.kit.blocks.perceptron import parameters_in
from sandbox.kit.blocks.sharded_adam import Adam
from sandbox.kit.blocks.zero_step import LARGE, compile_all, shared, step_at_once, step_beside

symm.reserve(4 << 30)  # states and results, two of each, and a gradient of the largest sizes


@torch.no_grad()
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

    Returns 12 tensors, the same on every rank: the updated W1, b1, W2, b2, then their first moments, then their second
    moments. Gradients are summed in float32, and Adam rounds once.
    """
    team, adam, dtype = symm.connect(), Adam(lr, beta1, beta2, eps, step), W1.dtype
    if X_local.is_cuda:
        compile_all(dtype, team.world)
    given = [x.contiguous() for x in (W1, b1, W2, b2)]
    means = [x.contiguous() for x in (exp_avg_W1, exp_avg_b1, exp_avg_W2, exp_avg_b2)]
    squares = [x.contiguous() for x in (exp_avg_sq_W1, exp_avg_sq_b1, exp_avg_sq_W2, exp_avg_sq_b2)]
    shapes = tuple(tuple(parameter.shape) for parameter in given)
    count, batch = sum(map(torch.Tensor.numel, given)), (X_local.contiguous(), y_local.contiguous())
    result = symm.out(3 * count, dtype, "result")
    if result.is_cuda and count * result.element_size() >= LARGE:
        plan = shared(shapes, team.world)
        weight = symm.out(count, dtype, "weight", ring=2)
        # One buffer is enough: rank 0 sends again after all ranks have ended their steps.
        moments = symm.empty((2, plan.longest), dtype, "moments")
        step_beside(batch, given, means + squares, weight, moments.unbind(), result.chunk(3), plan, adam)
    else:
        state = symm.out(3 * count, dtype, "state", ring=2)  # weights, first moments, second moments
        fan_out((*given, *means, *squares), state, team)
        share = -(-count // (8 * team.world)) * 8  # slices begin on 16 bytes if the whole does
        mine = slice(min(team.rank * share, count), (team.rank + 1) * share)
        old, updated = ([part[mine] for part in whole.chunk(3)] for whole in (state, result))
        step_at_once(batch, state[:count], shapes, adam, share, old, updated, (0, 1, 2))
    return tuple(part for flat in result.chunk(3) for part in parameters_in(flat, shapes))
