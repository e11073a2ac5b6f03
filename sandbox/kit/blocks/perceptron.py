"""Gradient of a two-layer ReLU perceptron without autograd: five products, and two launches for all work between them.

    from sandbox.kit.blocks.perceptron import parameters_in, write_gradient

    parameters = parameters_in(flat, shapes)             # views of W1, b1, W2, b2, one after another
    write_gradient(x, y, parameters, parameters_in(gradient, shapes))

Products write directly to the flat gradient. The gradient of W2 is complete before that of the hidden layer begins.
"""

import functools
import math
from collections.abc import Callable, Sequence

import torch

from sandbox.kit import cuda
from sandbox.kit.blocks import cuda_text

kernel_for = cuda.lazy(cuda_text("perceptron"))
WARPS = 8
WANTED = 1056
"""Approximate number of blocks of a launch: eight per multiprocessor."""
Tensors = Sequence[torch.Tensor]


def parameters_in(flat: torch.Tensor, shapes: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Views of a flat tensor with the given shapes, one after another."""
    counts = [math.prod(shape) for shape in shapes]
    return [part.view(*shape) for part, shape in zip(torch.split(flat, counts), shapes, strict=True)]


def write_gradient(
    features: torch.Tensor,
    targets: torch.Tensor,
    parameters: Tensors,
    gradients: Tensors,
    before_second: Callable[[], None] = lambda: None,
    ready: Callable[[int], None] = lambda number: None,
    rounds: Sequence[Sequence[tuple[int, int]]] = (),
) -> None:
    """Writes the gradient of the mean squared error of relu(X W1^T + b1) W2^T + b2 into `gradients`.

    features: [n, d_in], targets: [n, d_out]; parameters and gradients: W1 [h, d_in], b1 [h], W2 [d_out, h], b2 [d_out], all of
    one dtype. before_second is called when the first layer is queued, and before W2 and b2 are read. rounds: each computes the
    gradient of some ranges (top, bottom) of W1's rows; by default one of all. ready(number) is called when a part is queued: 0
    for W2 and b2, then 1, 2, ... for the rounds, before which b1's is complete.
    """
    w1, b1, w2, b2 = parameters
    of_w1, of_b1, of_w2, of_b2 = gradients
    hidden = torch._addmm_activation(b1, features, w1.t())  # relu in the product's epilogue
    before_second()
    output = torch.addmm(b2, hidden, w2.t())
    _change_by_loss(output, targets.contiguous(), of_b2)
    torch.mm(output.t(), hidden, out=of_w2)
    ready(0)
    back = torch.mm(output, w2)
    _change_by_relu(back, hidden, of_b1)
    for number, ranges in enumerate(rounds or [[(0, len(w1))]], 1):
        for top, bottom in ranges:
            if top < bottom:
                torch.mm(back[:, top:bottom].t(), features, out=of_w1[top:bottom])
        ready(number)


def _change_by_loss(output: torch.Tensor, targets: torch.Tensor, bias: torch.Tensor) -> None:
    factor = 2 / output.numel()
    if not output.is_cuda:
        output.copy_((output.float() - targets.float()) * factor)
        bias.copy_(output.float().sum(dim=0))
        return
    launch = kernel_for(output.dtype).loss_gradient[_launch(output)]
    launch(output, targets, bias.data_ptr(), *_room(output), *output.shape, factor)


def _change_by_relu(gradient: torch.Tensor, hidden: torch.Tensor, bias: torch.Tensor) -> None:
    if not gradient.is_cuda:
        gradient.masked_fill_(hidden <= 0, 0)
        bias.copy_(gradient.float().sum(dim=0))
        return
    launch = kernel_for(gradient.dtype).relu_gradient[_launch(gradient)]
    launch(gradient, hidden, bias.data_ptr(), *_room(gradient), *gradient.shape)


def _launch(x: torch.Tensor) -> tuple[tuple[int, int], int]:
    rows, width = x.shape
    strips = -(-width * x.element_size() // 512)
    return (strips, max(min(WANTED // strips, -(-rows // (2 * WARPS))), 1)), 32 * WARPS


def _room(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The buffers of a launch: (partial sums, counters that are zero)."""
    (strips, ranges), _ = _launch(x)
    partial = x.new_empty(ranges * x.shape[1], dtype=torch.float32)
    return partial, _counters(strips, x.device)


@functools.cache
def _counters(strips: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(strips, dtype=torch.int32, device=device)
