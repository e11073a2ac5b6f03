"""House kernel: data-parallel step; each rank updates a part of rank 0's state for all ranks.

Large moments stay with rank 0: the rank that updates an element reads them there, beside the products.
"""

import torch

from sandbox.kit import symm
from sandbox.kit.blocks.fan_out import fan_out, kernel_for
from sandbox.kit.blocks.perceptron import Tensors, parameters_in
from sandbox.kit.blocks.sharded_adam import Adam
from sandbox.kit.blocks.side_stream import beside, join
from sandbox.kit.blocks.zero_step import LARGE, compile_all, fan_out_layers, step_beside

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
    team, adam = symm.connect(), Adam(lr, beta1, beta2, eps, step)
    if X_local.is_cuda:
        compile_all(kernel_for, W1.dtype, team.world)
    given = (W1, b1, W2, b2)
    means = (exp_avg_W1, exp_avg_b1, exp_avg_W2, exp_avg_b2)
    squares = (exp_avg_sq_W1, exp_avg_sq_b1, exp_avg_sq_W2, exp_avg_sq_b2)
    shapes = [parameter.shape for parameter in given]
    count = sum(map(torch.Tensor.numel, given))
    state = symm.out(3 * count, W1.dtype, "state", ring=2)  # weights, first moments, second moments
    result = symm.out(3 * count, W1.dtype, "result")
    large = state.is_cuda and count * state.element_size() >= LARGE
    moments = (team.peers(state)[0] if large else state)[count:]

    def keep_moments() -> None:
        join()  # the second layer's weights have arrived
        if team.rank == 0:
            with beside():  # during the products that follow
                torch.cat([moment.reshape(-1) for moment in (*means, *squares)], out=moments)

    batch = X_local, y_local
    all_given = (*given, *means, *squares, state)
    old, updated = (state[:count], *moments.chunk(2)), result.chunk(3)
    step_beside(batch, state[:count], shapes, adam, 0, old, updated, (0, 1, 2), all_given, bring, keep_moments)
    return tuple(part for flat in result.chunk(3) for part in parameters_in(flat, shapes))


def bring(given: Tensors, weight: torch.Tensor, first: int, last: int, base: int, most_blocks: int) -> None:
    """Brings the whole state (the last of `given`) to all ranks, or the weights of one layer."""
    if (first, last) == (0, weight.numel()):
        fan_out(given[:-1], given[-1], symm.connect())
    else:
        fan_out_layers(given, weight, first, last, base, most_blocks)
