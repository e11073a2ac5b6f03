"""House kernel: data-parallel step; each rank updates a slice of rank 0's state for all ranks."""

import functools

import torch

from sandbox.kit import symm
from sandbox.kit.blocks.fan_out import fan_out
from sandbox.kit.blocks.fan_out import kernel_for as fan_out_kernel
from sandbox.kit.blocks.perceptron import kernel_for as gradient_kernels
from sandbox.kit.blocks.perceptron import parameters_in, write_gradient
from sandbox.kit.blocks.sharded_adam import Adam, step_slice
from sandbox.kit.blocks.sharded_adam import kernel_for as step_kernel
from sandbox.kit.blocks.side_stream import beside, join

LARGE = 16 << 20
"""Bytes of parameters from which exchanges run beside products."""
PIECES = 4
"""Pieces of the first layer's gradient: each is reduced and applied beside the product of the next."""
FEW, ALL = 32, 128
"""Blocks of an exchange that runs beside a product, and of one that runs alone."""

symm.reserve(4 << 30)  # states and results, two of each, and a gradient of the largest sizes


@functools.cache
def compile_all(dtype: torch.dtype, world: int) -> None:
    """Compiles before the first launch: a kernel that waits for a rank which still compiles traps after 2 s."""
    fan_out_kernel(dtype)
    gradient_kernels(dtype)
    step_kernel(dtype, WORLD=world)


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
        compile_all(W1.dtype, team.world)
    given = (W1, b1, W2, b2)
    means = (exp_avg_W1, exp_avg_b1, exp_avg_W2, exp_avg_b2)
    squares = (exp_avg_sq_W1, exp_avg_sq_b1, exp_avg_sq_W2, exp_avg_sq_b2)
    shapes = [parameter.shape for parameter in given]
    count, border = sum(map(torch.Tensor.numel, given)), W1.numel() + b1.numel()
    state = symm.out(3 * count, W1.dtype, "state", ring=2)  # weights, first moments, second moments
    gradient = symm.empty(count, W1.dtype, "gradient")  # free again at the end of a call
    result = symm.out(3 * count, W1.dtype, "result")
    old, updated = state.chunk(3), result.chunk(3)
    share = -(-count // (8 * team.world)) * 8  # slices begin on 16 bytes if the whole does

    def step_within(first: int, last: int, most_blocks: int) -> None:
        """Updates the elements `first` to `last` of the flat vector that this rank owns."""
        low = min(max(team.rank * share, first), last)
        mine = slice(low, min(max((team.rank + 1) * share, low), last))
        before, after = [part[mine] for part in old], [part[mine] for part in updated]
        longest = -(-min(last - first, share) * state.element_size() // 16)
        step_slice(team, adam, gradient[mine], before, after, (0, 1, 2), 512, longest, most_blocks)

    X, y = X_local.contiguous(), y_local.contiguous()
    parameters, gradients = parameters_in(old[0], shapes), parameters_in(gradient, shapes)
    if not state.is_cuda or gradient.nbytes < LARGE:
        fan_out((*given, *means, *squares), state, team)
        write_gradient(X, y, parameters, gradients)
        step_within(0, count, ALL)
    else:

        def send_moments() -> None:
            join()  # the second layer's weights have arrived
            with beside():
                fan_out((*means, *squares), state[count:], team, 256, FEW)

        def ready(first: int, last: int) -> None:
            with beside():
                step_within(first, last, ALL if last == border else FEW)

        # Weights of the second layer arrive during the first product, moments during those that follow.
        fan_out(given[:2], state[:border], team)
        with beside():
            fan_out(given[2:], state[border:count], team, 256, FEW)
        write_gradient(X, y, parameters, gradients, send_moments, ready, PIECES)
        join()
    return tuple(part for flat in updated for part in parameters_in(flat, shapes))
