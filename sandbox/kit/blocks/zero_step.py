"""Training step of a two-layer perceptron with Adam's state in slices (ZeRO stages 1 and 2).

    from sandbox.kit.blocks.zero_step import zero_step

    new = zero_step((X_local, y_local), (W1, b1, W2, b2), (exp_avg_part, exp_avg_sq_part), Adam(lr, beta1, beta2, eps, step))

A rank needs the averaged gradient of its own slice alone, so neither stage needs an all-reduce. The owner of a slice reduces it,
updates it and stores it at all ranks in one launch, while the products of the next piece run. `step_beside` is the step for
any place of weights and state, such as FSDP's.
"""

import functools
import itertools
import math
from collections.abc import Callable, Collection, Sequence

import torch

from sandbox.kit import symm
from sandbox.kit.blocks.fan_out import fan_out
from sandbox.kit.blocks.fan_out import kernel_for as fan_out_kernel
from sandbox.kit.blocks.perceptron import Tensors, parameters_in, write_gradient
from sandbox.kit.blocks.perceptron import kernel_for as gradient_kernels
from sandbox.kit.blocks.sharded_adam import Adam, State, step_slice
from sandbox.kit.blocks.sharded_adam import kernel_for as step_kernel
from sandbox.kit.blocks.side_stream import beside, join
from sandbox.kit.recorded import recorded

Pair = tuple[torch.Tensor, torch.Tensor]
Range = tuple[int, int]
Bring = Callable[[Tensors, torch.Tensor, int, int, int, int], None]
"""(given, weight, first, last, base, most_blocks) stores elements `first` to `last` of `weight`: all, or those of one layer."""

LARGE = 16 << 20
"""Bytes of parameters from which exchanges run beside products."""
PIECES = 4
"""Products of the first layer's gradient. In a round, each rank that owns some of the layer gets a part of what it owns, so that
the links of all of them are in use. A round is reduced and applied beside the products of the next."""
ALIGNED = 128
"""Products begin at multiples of this number of rows, because the library is slow at odd addresses."""
FEW, ALL = 32, 128
"""Blocks of an exchange that runs beside a product, and of one that runs alone."""


@functools.cache
def compile_all(exchange: Callable[[torch.dtype], object], dtype: torch.dtype, world: int) -> None:
    """Compiles before the first launch: a kernel that waits for a rank which still compiles traps after 2 s."""
    exchange(dtype)
    gradient_kernels(dtype)
    step_kernel(dtype, WORLD=world)


def step_beside(
    batch: Pair,
    weight: torch.Tensor,
    shapes: Sequence[Sequence[int]],
    adam: Adam,
    share: int,
    old: State,
    updated: State,
    to_all: Collection[int],
    given: Tensors,
    bring: Bring,
    before_second: Callable[[], None] = join,
) -> None:
    """Brings the weights, computes the gradient, and updates this rank's slice of the state, at the same time if they are large.

    batch: X_local [n, d_in] and y_local [n, d_out]. weight: symmetric and flat: W1, b1, W2, b2 of these shapes. share: elements
    of a rank's slice; the last slices may be shorter or empty. old, updated, to_all: this rank's slices, as for `step_slice`.
    With share = 0 they are the whole vectors, and all ranks update as many elements of every piece. given: what `bring` reads.
    bring: a function of a module, because small steps are recorded. before_second is called when the first layer is queued; it
    makes the current stream wait for the second layer's weights. Collective.
    """
    team, count, start = symm.connect(), weight.numel(), min(symm.rank * share, weight.numel())
    border = math.prod(shapes[0]) + math.prod(shapes[1])
    gradient = symm.empty(count, weight.dtype, "gradient")  # free again at the end of a call
    rows, parts = rounds(tuple(map(tuple, shapes)), share, team.world)

    def update(owned: Sequence[Range], most_blocks: int) -> None:
        """Updates the elements of the flat vector that this rank owns."""
        low, high = owned[team.rank]
        before, after = ([part[low - start : high - start] for part in state] for state in (old, updated))
        longest = -(-max(last - first for first, last in owned) * weight.element_size() // 16)
        step_slice(team, adam, gradient[low:high], before, after, to_all, 512, longest, most_blocks)

    def ready(number: int) -> None:
        with beside():
            update(parts[number], ALL if number == len(rows) else FEW)

    X, y = batch[0].contiguous(), batch[1].contiguous()
    if not weight.is_cuda or weight.nbytes < LARGE:
        _write_at_once((X, y), given, (weight, gradient), shapes, bring)
        update(slices(0, count, team.world, share), ALL)  # not recorded, because its numbers change from step to step
        return
    parameters, gradients = parameters_in(weight, shapes), parameters_in(gradient, shapes)
    # Weights of the second layer arrive during the first product. Both exchanges have their own signal slots.
    bring(given, weight, 0, border, 0, ALL)
    with beside():
        bring(given, weight, border, count, 256, FEW)
    write_gradient(X, y, parameters, gradients, before_second, ready, rows)
    join()


def slices(first: int, last: int, world: int, each: int) -> list[Range]:
    """Elements `first` to `last` in slices of `each` elements (0: of as many 16-byte words), one for each rank."""
    each = each or -(-(last - first) // (8 * world)) * 8
    edges = [min(first + rank * each, last) for rank in range(world + 1)]
    return list(itertools.pairwise(edges))


@functools.cache
def rounds(shapes: tuple[tuple[int, ...], ...], share: int, world: int) -> tuple[list[list[Range]], list[list[Range]]]:
    """(rows of W1 whose gradients a round computes, by round; elements that each rank updates: of layer 2, then by round)."""
    (h, width), count = shapes[0], sum(map(math.prod, shapes))
    border = h * width + h
    owned = slices(0, count, world, share)
    layer = [(min(low, border), min(high, border)) for low, high in owned] if share else [(0, border)]
    edges = [[h if end >= h * width else end // width // ALIGNED * ALIGNED for end in ends] for ends in layer]
    pieces = max(PIECES // sum(top < bottom for top, bottom in edges), 2)
    rows, parts = [], []
    for (low, high), (top, bottom) in zip(layer, edges, strict=True):
        cuts = [top + (bottom - top) * piece // pieces for piece in range(pieces + 1)]
        rows.append(itertools.pairwise(cuts))
        # Rows of two ranks are among the products of the second one, so the first one updates its part in the last round.
        inner = [min(max(row * width, low), high) for row in cuts[1:-1]]
        parts.append(itertools.pairwise([low, *inner, high]))
    by_round = [list(each) for each in zip(*rows, strict=True)]
    if not share:
        return by_round, [slices(border, count, world, 0), *(slices(*whole, world, 0) for whole in parts[0])]
    second = [(max(low, border), max(high, border)) for low, high in owned]
    return by_round, [second, *map(list, zip(*parts, strict=True))]


@recorded
def _write_at_once(batch: Pair, given: Tensors, flat: Pair, shapes: Sequence[Sequence[int]], bring: Bring) -> None:
    bring(given, flat[0], 0, flat[0].numel(), 0, ALL)
    write_gradient(*batch, parameters_in(flat[0], shapes), parameters_in(flat[1], shapes))


def fan_out_layers(given: Tensors, weight: torch.Tensor, first: int, last: int, base: int, most_blocks: int) -> None:
    """Brings rank 0's W1, b1, W2 and b2 to all ranks; see `Bring`."""
    layers = given[2 if first else 0 : 4 if last == weight.numel() else 2]
    fan_out(layers, weight[first:last], symm.connect(), base, most_blocks)


@torch.no_grad()
def zero_step(batch: Pair, given: Tensors, moments: Pair, adam: Adam) -> tuple[torch.Tensor, ...]:
    """Returns (W1, b1, W2, b2, exp_avg, exp_avg_sq) after the step, in fresh memory.

    batch: X_local [n, d_in] and y_local [n, d_out]; given: W1 [h, d_in], b1 [h], W2 [d_out, h], b2 [d_out], of which rank 0's
    count; moments: exp_avg_part and exp_avg_sq_part [q] with q·W = P. Parameters are whole and the same on every rank, moments
    this rank's slice [q] of the flat vector W1, b1, W2, b2. Gradients are summed in float32, and Adam rounds once.
    """
    team, dtype = symm.connect(), given[0].dtype
    if batch[0].is_cuda:
        compile_all(fan_out_kernel, dtype, team.world)
    shapes = [parameter.shape for parameter in given]
    count, q = sum(map(torch.Tensor.numel, given)), moments[0].numel()
    weight, result = symm.out(count, dtype, "weight", ring=2), symm.out(count, dtype, "result")
    mean, square = map(torch.empty_like, moments)
    mine = slice(team.rank * q, (team.rank + 1) * q)
    old, updated = (weight[mine], *moments), (result[mine], mean, square)
    step_beside(batch, weight, shapes, adam, q, old, updated, (0,), given, fan_out_layers)
    return (*parameters_in(result, shapes), mean, square)
