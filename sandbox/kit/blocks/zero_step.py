"""Training step of a two-layer perceptron with Adam's state in slices (ZeRO stages 1 and 2).

    from sandbox.kit.blocks.zero_step import zero_step

    new = zero_step((X_local, y_local), (W1, b1, W2, b2), (exp_avg_part, exp_avg_sq_part), Adam(lr, beta1, beta2, eps, step))

A rank needs the averaged gradient of its own slice alone, so neither stage needs an all-reduce. The owner of a slice reduces it,
updates it and stores it at all ranks: if it is small, in one launch (`step_at_once`). Large gradients are computed in rounds, in
each of which every rank owns a part. Copy engines send the parts of a round to their owners, and the owners' results to all
ranks, while the products of the next round run (`step_beside`). The whole step is one recorded call.
"""

import functools
import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.columns import kernel_for as column_kernels
from sandbox.kit.blocks.columns import stream_barrier
from sandbox.kit.blocks.fan_out import fan_out
from sandbox.kit.blocks.fan_out import kernel_for as fan_out_kernel
from sandbox.kit.blocks.perceptron import kernel_for as gradient_kernels
from sandbox.kit.blocks.perceptron import parameters_in, write_gradient
from sandbox.kit.blocks.sharded_adam import Adam, State, kept_numbers, step_arrived, step_slice
from sandbox.kit.blocks.sharded_adam import kernel_for as step_kernel
from sandbox.kit.blocks.side_stream import beside, join, mark
from sandbox.kit.recorded import recorded
from sandbox.kit.symmetric_memory.team import Team

Pair = tuple[torch.Tensor, torch.Tensor]
Parameters = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
Tensors = Sequence[torch.Tensor]
Shapes = tuple[tuple[int, ...], ...]
Ranges = list[list[tuple[int, int]]]
Part = tuple[slice, slice]
"""Elements of the flat vector that one rank owns, and where they are in what it owns."""

LARGE = 16 << 20
"""Bytes of parameters from which exchanges run beside products."""
ROUNDS = ((8, 4, 4), (8, 8), (16,))
"""Rows of the products of each round, in sixteenths. The last ones are small, because nothing runs beside their exchange."""
PIECE = 1 << 21
"""Least elements of a product that occupies most multiprocessors: rounds are as many as leave products of this size."""
FEW, ALL = 32, 128
"""Blocks of an exchange that runs beside a product, and of one that runs alone."""
SLOT = 1000


@dataclass(frozen=True, eq=False)
class Plan:
    """The rounds of a step."""

    shapes: Shapes
    rows: tuple[Ranges, Ranges]
    """For `write_gradient`."""
    parts: list[list[Part]]
    """What each round completes, by owner."""
    to_all: tuple[int, ...]
    """The numbers of the results (weight, moments) that all ranks get, as whole vectors. Of the others each has its part."""

    @property
    def longest(self) -> int:
        """Elements of the rank that owns most."""
        return max(int(placed.stop) for parts in self.parts for _, placed in parts)


def _part(first: int, last: int, place: int) -> Part:
    return slice(first, last), slice(place, place + last - first)


def _row_start(shapes: Shapes, place: int) -> int:
    """The start of the row of W1 or W2 that holds an element of the flat vector; the element itself if it is in b1 or b2."""
    w1, b1, w2, _ = map(math.prod, shapes)
    within = place - w1 - b1
    if place < w1:
        return place - place % shapes[0][1]
    return place - within % shapes[2][1] if 0 <= within < w2 else place


def _edges(first: int, last: int, least: int) -> list[int]:
    """Where the rounds of a range begin, and the range's end. least: elements of a range's product that should fill a GPU."""
    rounds = next((each for each in ROUNDS if least * min(each) >= 16 * PIECE), ROUNDS[-1])
    return [first + (last - first) * sum(rounds[:number]) // 16 for number in range(len(rounds) + 1)]


@functools.cache
def sliced(shapes: Shapes, share: int, world: int, to_all: tuple[int, ...]) -> Plan:
    """Rank r owns the elements from r * share on, as with ZeRO and FSDP. Each round has rows of every slice."""
    count = sum(map(math.prod, shapes))
    rows: Ranges = []
    parts: list[list[Part]] = []
    for owner in range(world):
        low, high = min(owner * share, count), min((owner + 1) * share, count)
        edges = _edges(low, high, share)
        cuts = [_row_start(shapes, place) if place < count else count for place in edges]
        ends = [low, *(min(max(cut, low), high) for cut in cuts[1:-1]), high]
        for number in range(len(edges) - 1):
            if owner == 0:
                rows.append([])
                parts.append([])
            rows[number].append((cuts[number], cuts[number + 1]))
            parts[number].append(_part(ends[number], ends[number + 1], ends[number] - low))
    return Plan(shapes, ([], rows), parts, to_all)


@functools.cache
def shared(shapes: Shapes, world: int) -> Plan:
    """Every rank owns a part of each round's rows, as data parallelism allows; all results go to all ranks.

    The second layer comes first, so that its exchange begins before the first layer's gradient.
    """
    border, count = math.prod(shapes[0]) + math.prod(shapes[1]), sum(map(math.prod, shapes))
    rows: tuple[Ranges, Ranges] = ([], [])
    parts: list[list[Part]] = []
    place = 0
    for layer, (low, high) in zip(rows, ((border, count), (0, border)), strict=True):
        cuts = [low, *(_row_start(shapes, edge) for edge in _edges(low, high, high - low)[1:-1]), high]
        for first, last in itertools.pairwise(cuts):
            layer.append([(first, last)])
            each = -(-(last - first) // (8 * world)) * 8  # parts begin on 16 bytes if their rows do
            starts = [min(first + owner * each, last) for owner in range(world + 1)]
            parts.append([_part(start, end, place) for start, end in itertools.pairwise(starts)])
            place += each
    return Plan(shapes, rows, parts, (0, 1, 2))


@functools.cache
def compile_all(dtype: torch.dtype, world: int) -> None:
    """Compiles before the first launch: a kernel that waits for a rank which still compiles traps after 2 s."""
    fan_out_kernel(dtype)
    column_kernels(cuda.unit_of(torch.empty(0, dtype=dtype)))
    gradient_kernels(dtype)
    step_kernel(dtype, WORLD=world)


def step_at_once(
    batch: Pair,
    weight: torch.Tensor,
    shapes: Sequence[Sequence[int]],
    adam: Adam,
    share: int,
    old: State,
    updated: State,
    to_all: Collection[int],
) -> None:
    """Computes the gradient, and updates this rank's slice of the state in one launch.

    batch: X_local [n, d_in] and y_local [n, d_out]. weight: flat: W1, b1, W2, b2 of these shapes. share: elements of a rank's
    slice; the last slices may be shorter or empty. old, updated, to_all: this rank's slices, as for `step_slice`. Collective.
    """
    team, count = symm.connect(), weight.numel()
    gradient = symm.empty(count, weight.dtype, "gradient")  # free again at the end of a call
    write_gradient(*batch, parameters_in(weight, shapes), parameters_in(gradient, shapes))
    mine = gradient[min(team.rank * share, count) : (team.rank + 1) * share]
    step_slice(team, adam, mine, old, updated, to_all, 512, -(-share * weight.element_size() // 16))


def step_beside(
    batch: Pair,
    given: Tensors,
    sent: Tensors,
    weight: torch.Tensor,
    moments: Tensors,
    updated: State,
    plan: Plan,
    adam: Adam,
) -> None:
    """Brings the weights, computes the gradient and updates the state; exchanges run beside products. On GPUs. Collective.

    given: W1, b1, W2, b2, of which rank 0's count, or this rank's slice of them. weight: room for the whole flat vector,
    symmetric, one of two buffers in turn. sent: nothing, or rank 0's moments, which `moments` of their owners get: four first and
    four second ones; `moments` is symmetric then. moments, updated: as `plan` says. All tensors are contiguous.
    """
    team = symm.connect()
    # One buffer is enough: all ranks have ended their steps before any of them gets all results, or the next call's weights.
    arrived = team.empty((team.world, plan.longest), weight.dtype, "gradients")
    numbers = kept_numbers(team, adam, weight)
    _queue_step(*batch, list(given), list(sent), weight, list(moments), list(updated), arrived, numbers, plan, team)


@recorded
def _queue_step(
    x: torch.Tensor,
    y: torch.Tensor,
    given: Tensors,
    sent: Tensors,
    weight: torch.Tensor,
    moments: Tensors,
    updated: State,
    arrived: torch.Tensor,
    numbers: torch.Tensor,
    plan: Plan,
    team: Team,
) -> None:
    gradient = torch.empty_like(weight)
    border, there = math.prod(plan.shapes[0]) + math.prod(plan.shapes[1]), team.peers(arrived)
    if len(given) > 1:
        fan_out(given[:2], weight[:border], team, 0, ALL)
    with beside():  # with separate signal slots
        if len(given) > 1:
            fan_out(given[2:], weight[border:], team, 256, FEW)
        else:
            _copy_to_all(given[0], weight[team.rank * given[0].numel() :][: given[0].numel()], team)
            stream_barrier(weight, team, SLOT)
        brought = mark()
        if sent and team.rank == 0:
            _send_moments(sent, moments, plan, team)
    if len(given) == 1:
        join(brought)

    def exchange(number: int) -> None:
        mine, placed = plan.parts[number][team.rank]
        after = [state[mine if number in plan.to_all else placed] for number, state in enumerate(updated)]
        with beside():
            for owner in team.order()[1:]:  # so that no rank receives from two at a time
                theirs, place = plan.parts[number][owner]
                there[owner][team.rank, place].copy_(gradient[theirs])
            stream_barrier(weight, team, SLOT)
            before = [weight[mine], *(state[placed] for state in moments)]
            step_arrived(team, numbers, gradient[mine], arrived[:, placed], before, after)
            for result in plan.to_all:
                _copy_to_all(after[result], after[result], team)

    parameters, gradients = parameters_in(weight, plan.shapes), parameters_in(gradient, plan.shapes)
    write_gradient(x, y, parameters, gradients, lambda: join(brought), plan.rows, exchange)
    with beside():
        if plan.to_all:
            stream_barrier(weight, team, SLOT)
    join()


def _copy_to_all(x: torch.Tensor, place: torch.Tensor, team: Team) -> None:
    """Copies x to a symmetric place of every rank, this one's if x is not there already."""
    places = team.peers(place)
    for peer in (*team.order()[1:], team.rank):
        if places[peer].data_ptr() != x.data_ptr():
            places[peer].copy_(x)


def _send_moments(sent: Tensors, moments: Tensors, plan: Plan, team: Team) -> None:
    """Copies to every owner what it owns of the moments, whose first and second ones are four tensors each."""
    for number, state in enumerate(moments):
        places, first = team.peers(state), 0
        for tensor in sent[4 * number : 4 * number + 4]:
            last = first + tensor.numel()
            for parts in plan.parts:
                for place, (part, placed) in zip(places, parts, strict=True):
                    low, high, shift = max(first, part.start), min(last, part.stop), placed.start - part.start
                    if low < high:
                        place[low + shift : high + shift].copy_(tensor.view(-1)[low - first : high - first])
            first = last


@torch.no_grad()
def zero_step(batch: Pair, given: Parameters, moments: Pair, adam: Adam) -> tuple[torch.Tensor, ...]:
    """Returns (W1, b1, W2, b2, exp_avg, exp_avg_sq) after the step, in fresh memory.

    batch: X_local [n, d_in] and y_local [n, d_out]; given: W1 [h, d_in], b1 [h], W2 [d_out, h], b2 [d_out], of which rank 0's
    count; moments: exp_avg_part and exp_avg_sq_part [q] with q·W = P. Parameters are whole and the same on every rank, moments
    this rank's slice [q] of the flat vector W1, b1, W2, b2. Gradients are summed in float32, and Adam rounds once.
    """
    team, dtype = symm.connect(), given[0].dtype
    if batch[0].is_cuda:
        compile_all(dtype, team.world)
    shapes = tuple(tuple(parameter.shape) for parameter in given)
    count, q = sum(map(torch.Tensor.numel, given)), moments[0].numel()
    weight, result = symm.out(count, dtype, "weight", ring=2), symm.out(count, dtype, "result")
    moments = moments[0].contiguous(), moments[1].contiguous()
    mean, square = map(torch.empty_like, moments)
    batch, weights = (batch[0].contiguous(), batch[1].contiguous()), [weight.contiguous() for weight in given]
    if weight.is_cuda and weight.nbytes >= LARGE:
        plan = sliced(shapes, q, team.world, (0,))
        step_beside(batch, weights, (), weight, moments, (result, mean, square), plan, adam)
    else:
        fan_out(weights, weight, team)
        mine = slice(team.rank * q, (team.rank + 1) * q)
        step_at_once(batch, weight, shapes, adam, q, (weight[mine], *moments), (result[mine], mean, square), (0,))
    return (*parameters_in(result, shapes), mean, square)
