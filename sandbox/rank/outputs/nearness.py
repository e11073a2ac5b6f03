"""The distance of many iterations' outputs from the baseline's own, computed at once: cheap enough for every timed call.

This only selects outputs. One that is not near is compared with the oracle like any other, and that comparison decides.
An output within its limits against the oracle is nearly always near: `Limits.beside` allows the errors of both, unless they
are opposed. Then a kernel could have such outputs compared, and return coarse ones afterwards that are as far.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from sandbox.memory import slots
from sandbox.memory.host import up
from sandbox.rank.outputs.checks import Limits
from sandbox.rank.outputs.measures import measures, rows_of_reals

FAR = float("inf")
CHUNK_BYTES, CACHED_BYTES = 64 << 20, 256 << 10
"""Bytes of outputs that are processed at once, on devices and in host memory. The latter stay in the caches of a core."""
EQUAL_BYTES = 1 << 30
"""Bytes of outputs that are checked for equality at once."""

LimitsOf = Callable[[slots.Unpacked], list[Limits]]
"""Returns the limits of each output's difference from the given baseline output; fewer if they are not known for all."""


def distance(got: torch.Tensor, baseline: torch.Tensor, held: Limits, shape: Sequence[int] = ()) -> torch.Tensor:
    """The distance of each row's values from the baseline's, in units of its limit: float64 [rows]; near is at most 1.

    got, baseline: [rows, elements] of one dtype and shape, at least one element. shape: of the output in a row.
    """
    if not (got.dtype.is_floating_point or got.dtype.is_complex):
        differs = (got != baseline).any(dim=1)
        return torch.where(differs, FAR, 0.0).to(torch.float64)
    if held.exact:
        return torch.where(_same(_numbers(got), _numbers(baseline)).all(dim=1), 0.0, FAR).to(torch.float64)
    found = _in_limits(rows_of_reals(got), rows_of_reals(baseline), held, shape)
    strange = ~found.isfinite()
    if bool(strange.any()):
        # Equal infinities, NaNs and zeros are no difference. A row whose squares overflow stays far.
        y, b = _numbers(got)[strange], _numbers(baseline)[strange]
        same, known = _same(y, b), b.isfinite()
        b = b.masked_fill(~known, 0)
        again = _in_limits(y.masked_fill_(~known, math.nan).where(~same, b), b, held, shape)
        found[strange] = again.masked_fill_(same.all(dim=1), 0)
    return found.nan_to_num_(FAR, FAR)


def _in_limits(y: torch.Tensor, b: torch.Tensor, held: Limits, shape: Sequence[int]) -> torch.Tensor:
    """float64 [rows] in units of the limit; NaN or infinite if a value is, or if all of the baseline's are zero."""
    norm, off, largest = measures(y, b).unbind(dim=1)
    rms = off / (norm * held.rms)
    if held.along >= 0:
        parts = (_numbers(y) - _numbers(b)).view(len(y), *shape, -1).transpose(1, 1 + held.along)
        scale = norm / b.shape[1] ** 0.5
        rms = torch.maximum(rms, parts.flatten(2).square().mean(dim=2).amax(dim=1).sqrt() / (scale * held.slice_rms))
    return torch.where(norm.isfinite(), torch.maximum(rms, largest / held.max), FAR)


def _same(y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (y == b) | (y.isnan() & b.isnan())


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Values for arithmetic: at least float32; real and imaginary parts stay apart."""
    real = rows_of_reals(tensor)
    return real if real.dtype in (torch.float32, torch.float64) else real.to(torch.float32)


def distance_of_slots(
    theirs: torch.Tensor, baseline: torch.Tensor, chosen: Sequence[int], size: int, room: int, limits_of: LimitsOf
) -> torch.Tensor:
    """Computes `distance` of slots of two output arenas: float64 [slots]; infinite if structures or layouts differ.

    theirs, baseline: flat uint8, slots of `size` bytes whose headers have room for `room` tensors.
    """
    mine, its = (arena[: arena.numel() // size * size].view(-1, size) for arena in (theirs, baseline))
    parts = [theirs.new_zeros(0, dtype=torch.float64)]
    for run in _runs(chosen, max(1, EQUAL_BYTES // size)):
        place = slice(run.start, run.stop)
        if slots.same_outputs(mine[place], its[place]):
            parts.append(theirs.new_zeros(len(run), dtype=torch.float64))
            continue
        alike = _alike(mine, its, run, slots.header_bytes(room))
        parts += [_distance_of_alike(mine[some], its[some], room, limits_of) for some in alike]
    return torch.cat(parts)


def _runs(chosen: Sequence[int], most: int) -> Iterator[range]:
    """Runs of at most so many neighbouring slots, in the order of `chosen`."""
    first = 0
    for at in range(1, len(chosen) + 1):
        if at == len(chosen) or at - first == most or chosen[at] != chosen[at - 1] + 1:
            yield range(chosen[first], chosen[first] + at - first)
            first = at


def _alike(mine: torch.Tensor, its: torch.Tensor, run: range, header: int) -> Iterator[slice]:
    """Parts of a run of slots with the same headers on either side."""
    most = max(1, (CACHED_BYTES if mine.is_cpu else CHUNK_BYTES) // mine.shape[1])
    first = run.start
    while first < run.stop:
        count = min(most, run.stop - first)
        heads = torch.cat([mine[first : first + count, :header], its[first : first + count, :header]], dim=1)
        other = (heads != heads[:1]).any(dim=1)
        if bool(other.any()):
            count = int(other.to(torch.uint8).argmax())
        yield slice(first, first + count)
        first += count


def same_layout(got: slots.Unpacked, expected: slots.Unpacked) -> bool:
    """Whether two outputs have the same containers, and tensors that differ in nothing but their values."""
    mine, its = ([(t.dtype, t.shape, d) for t, d in zip(o.tensors, o.devices, strict=True)] for o in (got, expected))
    alike = got.sound and got.structure == expected.structure and mine == its
    return alike and all(got.is_dense(n) or got.strides[n] == expected.strides[n] for n in range(len(mine)))


def _distance_of_alike(mine: torch.Tensor, its: torch.Tensor, room: int, limits_of: LimitsOf) -> torch.Tensor:
    found = mine.new_zeros(mine.shape[0], dtype=torch.float64)
    got, expected = slots.Unpacked(mine[0], room), slots.Unpacked(its[0], room)
    held = limits_of(expected)
    if not same_layout(got, expected) or len(held) < len(expected.tensors):
        return found + FAR
    for index, y in enumerate(got.tensors):
        if y.numel():
            start, size = got.offsets[index], y.numel() * y.element_size()
            padded = slice(start, start + up(size))  # what lies between tensors is poison on both sides
            if torch.equal(mine[:, padded].view(torch.int64), its[:, padded].view(torch.int64)):
                continue
            place = slice(start, start + size)
            here = distance(mine[:, place].view(y.dtype), its[:, place].view(y.dtype), held[index], y.shape)
            found = torch.maximum(found, here)
    return found
