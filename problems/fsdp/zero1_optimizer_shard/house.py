"""House kernel: ZeRO-1 step without an all-reduce; exchanges run beside the products."""

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

symm.reserve(4 << 30)  # weights, gradient and results of the largest sizes


@functools.cache
def compile_all(dtype: torch.dtype, world: int) -> None:
    """Compiles before the first launch: a kernel that waits for a rank which still compiles traps after 2 s."""
    fan_out_kernel(dtype)
    gradient_kernels(dtype)
    step_kernel(dtype, world)


@torch.no_grad()
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
    rank's slice [q] of the flat vector W1, b1, W2, b2. Gradients are summed in float32, and Adam rounds once.
    """
    team, adam = symm.connect(), Adam(lr, beta1, beta2, eps, step)
    if X_local.is_cuda:
        compile_all(W1.dtype, team.world)
    given = (W1, b1, W2, b2)
    shapes = [parameter.shape for parameter in given]
    count, border, q = sum(map(torch.Tensor.numel, given)), W1.numel() + b1.numel(), exp_avg_part.numel()
    weight = symm.out(count, W1.dtype, "weight", ring=2)
    gradient = symm.empty(count, W1.dtype, "gradient")  # free again at the end of a call
    result = symm.out(count, W1.dtype, "result")
    mean, square = torch.empty_like(exp_avg_part), torch.empty_like(exp_avg_sq_part)

    def step_within(first: int, last: int, most_blocks: int) -> None:
        """Updates the elements `first` to `last` of the flat vector that this rank owns."""
        low = min(max(team.rank * q, first), last)
        high = min(max((team.rank + 1) * q, first), last)
        mine, place = slice(low, high), slice(low - team.rank * q, high - team.rank * q)
        old = weight[mine], exp_avg_part[place], exp_avg_sq_part[place]
        updated = result[mine], mean[place], square[place]
        longest = -(-min(last - first, q) * weight.element_size() // 16)
        step_slice(team, adam, gradient[mine], old, updated, (0,), 512, longest, most_blocks)

    X, y = X_local.contiguous(), y_local.contiguous()
    parameters, gradients = parameters_in(weight, shapes), parameters_in(gradient, shapes)
    if not weight.is_cuda or weight.nbytes < LARGE:
        fan_out(given, weight, team)
        write_gradient(X, y, parameters, gradients)
        step_within(0, count, ALL)
    else:

        def ready(first: int, last: int) -> None:
            with beside():
                step_within(first, last, ALL if last == border else FEW)

        # Weights of the second layer arrive during the first product. Both exchanges have their own signal slots.
        fan_out(given[:2], weight[:border], team)
        with beside():
            fan_out(given[2:], weight[border:], team, 256, FEW)
        write_gradient(X, y, parameters, gradients, join, ready, PIECES)
        join()
    return (*parameters_in(result, shapes), mean, square)
