"""The distance of an output from the oracle, and its limits.

An output is right if its error against a float64 oracle is not larger than the baseline's usual error, with room for
chance and for another order of summation. The usual error comes from a calibration on iterations that are drawn before
any kernel is judged. Integers, booleans and pure data movement (the baseline's error is zero) must match exactly.
Absolute tolerances are wrong in both directions: they reject kernels that accumulate in float32, and accept constants
when values are small.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from sandbox.memory.slots import raw_bytes, same_bits
from sandbox.protocol.events import OutputError
from sandbox.protocol.verdict import Verdict
from sandbox.rank.outputs.measures import measures, rows_of_reals

RMS_FACTOR = 1.2
"""Limit of the RMS error, relative to the usual error. In bfloat16 the error comes from rounding: an honest kernel
rounds where the baseline does, or less often. With 8-bit messages or 6-bit inputs the error is at least 1.5 times the
usual one in nearly all problems (ADMISSION.md)."""
ORDER_FACTOR = 2.5
"""The same in run dtypes whose errors come from the order of summation, which is free. It applies up to CAP_ULPS."""
MAX_FACTOR, CAP_ULPS = 4.0, 32.0
"""Limit of the largest elementwise error, relative to the baseline's; units in the last place up to which this factor and
ORDER_FACTOR apply."""
FLOOR_ULPS = 4.0
"""Least RMS limit of float32 and finer dtypes. It allows another order of summation if the baseline's is exact."""
DEVIATIONS = 5.0
"""Standard deviations of the error between iterations that are allowed for chance."""
SPREAD_OF_ONE, SPREAD = 0.75, 1.4
"""Standard deviation of the error between iterations, relative to its mean. The first is that of one element with
normal errors. The second, divided by the square root of n, is that of n elements with errors of their own."""
HEAVY_TAIL = 2 * SPREAD_OF_ONE
"""If the usual error spreads more than this, few iterations cause it. In these, the baseline's own error gives only the
order of magnitude of an honest error, so an output may have ORDER_FACTOR times as much."""
COARSE_EPS = 4e-3
"""Run dtypes with this epsilon or a larger one (bfloat16) are near 8-bit messages, so that only RMS_FACTOR applies."""
PAPER_TOLERANCE = 1e-2
MAP_PARTS = 32
"""Most parts of an output whose shares of wrong elements a screen shows."""
AT_ONCE = 1 << 24
"""Elements that are compared at once. The computation takes ten times the memory of these elements in float64."""


@dataclass(frozen=True)
class OwnError:
    """The error of one output in one iteration."""

    rms: float = 0.0
    max: float = 0.0


@dataclass(frozen=True)
class UsualError:
    """The baseline's error on one output over the iterations of the calibration, each the largest of all ranks."""

    rms: float = 0.0
    """Root of the mean square of the iterations' relative RMS errors."""
    spread: float = 0.0
    """Standard deviation of these errors, relative to their mean."""
    max: float = 0.0
    """The largest elementwise error."""

    @classmethod
    def of(cls, errors: Sequence[OwnError]) -> "UsualError":
        """The usual error of these iterations, without those whose error is infinite because the oracle is zero."""
        rms = [error.rms for error in errors if math.isfinite(error.rms)]
        if not rms:
            return cls()
        mean = sum(rms) / len(rms)
        square = sum(each * each for each in rms) / len(rms)
        variance = sum((each - mean) ** 2 for each in rms) / max(1, len(rms) - 1)
        largest = max(error.max for error in errors if math.isfinite(error.max))
        return cls(math.sqrt(square), math.sqrt(variance) / mean if mean else 0.0, largest)


@dataclass(frozen=True)
class Limits:
    """The limits of one output's error. If both are zero, it must be bit-exact."""

    rms: float
    max: float
    exact: bool
    along: int = -1
    """The dimension whose every index has the limit `slice_rms`, relative to the RMS of the whole output; -1: none."""
    slice_rms: float = 0.0

    def beside(self, own: OwnError) -> "Limits":
        """The limits of the difference between an output within these limits and the baseline's output.

        Each of the two has its own error against the oracle; many of them add up by their squares. own: the baseline's usual
        error, which may be twice as large on other iterations.
        """
        rms, slice_rms = (math.hypot(each, own.rms) for each in (self.rms, self.slice_rms))
        return replace(self, rms=rms, max=self.max + 2 * own.max, slice_rms=slice_rms)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """float64 or complex128 copy for arithmetic; real and imaginary parts stay apart as a last dimension of 2."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128))
    return tensor.to(torch.float64)


def errors(got: torch.Tensor, oracle: torch.Tensor) -> OwnError:
    """Relative RMS and largest elementwise error, over elements where both are finite.

    Shapes equal; any floating or complex dtypes. rms: ‖y − y*‖ / ‖y*‖ (0/0 is 0). max: max |y − y*| / (|y*| + rms(y*)).
    """
    y, o = rows_of_reals(got.flatten()[None]), wide(oracle).flatten()[None]
    scale, off, largest = measures(y, o)[0].tolist()
    if not math.isfinite(scale + off):
        y = y.to(o.dtype)
        known = torch.isfinite(y) & torch.isfinite(o)
        scale, off, largest = measures(y[known][None], o[known][None])[0].tolist()
    if scale == 0.0:
        return OwnError(*[math.inf if off else 0.0] * 2)
    return OwnError(off / scale, largest)


def _parts(*tensors: torch.Tensor) -> Iterator[tuple[slice, list[torch.Tensor]]]:
    """Yields parts of tensors of equal size: the place of AT_ONCE elements, and these as `wide` returns them."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    for begin in range(0, flat[0].numel(), AT_ONCE):
        place = slice(begin, begin + AT_ONCE)
        yield place, [wide(tensor[place]) for tensor in flat]


def limits(
    tensor: torch.Tensor,
    run_dtype: torch.dtype,
    usual: UsualError,
    own: OwnError,
    rms_floor: float,
    max_floor: float,
    exact: bool,
) -> Limits:
    """The limits of the error of an output like this tensor.

    usual: the baseline's error in the calibration. own: its error in this iteration, so that a kernel that computes what
    the baseline computes always passes. The floors are the problem's.
    """
    dtype = tensor.dtype
    if exact or not (dtype.is_floating_point or dtype.is_complex):
        return Limits(0.0, 0.0, True)
    if not any((usual.rms, usual.max, own.rms, own.max, rms_floor, max_floor)):
        return Limits(0.0, 0.0, True)
    ulp = torch.finfo(dtype).eps
    by_chance = min(SPREAD_OF_ONE, SPREAD / math.sqrt(max(1, tensor.numel())))
    room = 1 + DEVIATIONS * max(usual.spread, by_chance)
    rms = RMS_FACTOR * room * usual.rms
    if torch.finfo(run_dtype).eps < COARSE_EPS:
        rms = min(ORDER_FACTOR * room * usual.rms, max(CAP_ULPS * ulp, rms))
    floor = ulp / 4 if ulp > 1e-4 else FLOOR_ULPS * ulp
    as_large = ORDER_FACTOR if usual.spread > HEAVY_TAIL else RMS_FACTOR
    rms = max(rms, as_large * own.rms, floor, rms_floor)
    largest = max(usual.max, own.max)
    largest = min(max(MAX_FACTOR * largest, ulp), max(CAP_ULPS * ulp, 1.5 * largest))
    return Limits(rms, max(largest, rms, max_floor), False)


def _show(tensor: torch.Tensor, index: tuple[int, ...]) -> str:
    value = tensor[index].item()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def compare(
    name: str, got: torch.Tensor, baseline: torch.Tensor, oracle: torch.Tensor, own: OwnError, held: Limits
) -> tuple[OutputError, Verdict]:
    """One output against the oracle (all three have the same shape; got and baseline the same dtype).

    Returns the figures for a screen, and PASS, WRONG_RESULT or NONFINITE.
    """
    total = got.numel()
    floating = got.dtype.is_floating_point or got.dtype.is_complex
    error = errors(got, oracle) if floating and total else OwnError()
    verdict = Verdict.PASS
    wrong: torch.Tensor | None = None
    """By element; None if all are right."""
    not_finite: torch.Tensor | None = None
    """If that is the verdict: the elements that are not finite but should be, or the reverse."""
    if held.exact:
        if total and not same_bits(got, baseline):
            wrong, not_finite = _inexact(got, baseline)
    elif total and not _within(got, baseline, error, held):
        wrong, not_finite = _beyond(got, baseline, oracle, held)
    if not_finite is not None:
        verdict = Verdict.NONFINITE
    elif (wrong is not None and bool(wrong.any())) or not (held.exact or error.rms <= held.rms):
        verdict = Verdict.WRONG_RESULT
    count = 0 if wrong is None else int(wrong.sum())
    first: list[int] | None = None
    expected = shown = ""
    if verdict is not Verdict.PASS and total:
        named = wrong if not_finite is None else not_finite
        if named is not None and named.dim() > got.dim():
            named = named.any(dim=-1)  # real and imaginary parts
        flat = int(named.reshape(-1).to(torch.uint8).argmax()) if count and named is not None else _worst(got, oracle)
        index = _index(flat, got.shape)
        first = list(index)
        expected = _show(baseline if held.exact else oracle, index)
        shown = _show(got, index)
    figures = OutputError(
        output=name,
        ok=verdict is Verdict.PASS,
        exact=held.exact,
        rms=error.rms,
        max=error.max,
        baseline_rms=own.rms,
        baseline_max=own.max,
        rms_limit=held.rms,
        max_limit=held.max,
        wrong=count,
        total=total,
        shape=list(got.shape),
        first_wrong=first,
        expected=expected,
        got=shown,
        where=_map(wrong) if count and wrong is not None else [],
    )
    return figures, verdict


def _inexact(got: torch.Tensor, baseline: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The elements that differ from the baseline's, and those whose NaNs or infinities differ, or None."""
    element = got.element_size()
    differs = raw_bytes(got).view(-1, element) != raw_bytes(baseline).view(-1, element)
    wrong = differs.any(dim=1).view(got.shape)
    # -0.0 and 0.0 are the same number; NaN must be NaN.
    wrong &= ~((got == baseline) | ((got != got) & (baseline != baseline)))
    strange = _nonfinite_differs(wide(got), wide(baseline))
    return wrong, strange if bool(strange.any()) else None


def _within(got: torch.Tensor, baseline: torch.Tensor, error: OwnError, held: Limits) -> bool:
    """Whether no element can be wrong: all are finite, and the largest error is within its limit. `_beyond` decides otherwise."""
    if held.along >= 0 or not error.max <= held.max:
        return False
    # torch has no isfinite for 8 bits
    known = (tensor.to(torch.float32) if tensor.element_size() == 1 else tensor for tensor in (got, baseline))
    return all(bool(tensor.isfinite().all()) for tensor in known)


def _beyond(
    got: torch.Tensor, baseline: torch.Tensor, oracle: torch.Tensor, held: Limits
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The elements beyond their limit, and those whose NaNs or infinities are wrong, or None."""
    scale = _rms(oracle)
    strange, beyond = (got.new_empty(got.numel(), dtype=torch.bool) for _ in range(2))
    for place, (y, o, b, rounded) in _parts(got, oracle, baseline, oracle.to(got.dtype)):
        odd = _nonfinite_differs(y, b) & _nonfinite_differs(y, rounded)
        far = (y - o).abs_() > (o.abs() + scale).mul_(held.max)
        far &= torch.isfinite(y) & torch.isfinite(o)
        if got.dtype.is_complex:
            odd, far = odd.any(dim=-1), far.any(dim=-1)
        strange[place], beyond[place] = odd, far
    strange, beyond = strange.view(got.shape), beyond.view(got.shape)
    if held.along >= 0:
        off = _slices_beyond((wide(got) - wide(oracle)).nan_to_num(0.0), held, scale)
        beyond |= off.any(dim=-1) if got.dtype.is_complex else off
    return strange | beyond, strange if bool(strange.any()) else None


def _rms(oracle: torch.Tensor) -> float:
    """The RMS of the finite elements; 0 if there are none."""
    known = (o[torch.isfinite(o)] for _, (o,) in _parts(oracle))
    parts = [(float(finite.square().sum()), len(finite)) for finite in known]
    return math.sqrt(sum(squares for squares, _ in parts) / max(1, sum(count for _, count in parts)))


def _slices_beyond(difference: torch.Tensor, held: Limits, scale: float) -> torch.Tensor:
    """The elements of slices whose RMS error is too large."""
    others = [dimension for dimension in range(difference.dim()) if dimension != held.along]
    off = difference.square().mean(dim=others, keepdim=True).sqrt()
    return (off > held.slice_rms * scale).expand(difference.shape)


def _nonfinite_differs(y: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    nan = torch.isnan(y) != torch.isnan(reference)
    infinite = (torch.isinf(y) | torch.isinf(reference)) & (y != reference)
    return nan | (infinite & ~torch.isnan(y) & ~torch.isnan(reference))


def _index(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of the element with this number. torch.unravel_index would spend a second on importing a library."""
    index: list[int] = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        index.append(place)
    return tuple(reversed(index))


def _worst(got: torch.Tensor, oracle: torch.Tensor) -> int:
    difference = (wide(got) - wide(oracle)).abs()
    if got.dtype.is_complex:
        difference = difference.amax(dim=-1)
    return int(difference.nan_to_num(0.0, 0.0, 0.0).reshape(-1).argmax())


def _map(wrong: torch.Tensor) -> list[float]:
    flat = wrong.reshape(-1).to(torch.float32)
    return [round(float(part.mean()), 4) for part in flat.tensor_split(min(MAP_PARTS, flat.numel()))]


def paper_rule(got: torch.Tensor, baseline: torch.Tensor) -> bool:
    """Upstream's rule, shown in addition: allclose in float32 with atol = rtol = 1e-2, without the imaginary part.

    The dtype is ignored.
    """
    if got.shape != baseline.shape:
        return False
    y = (got.real if got.is_complex() else got).to(torch.float32)
    o = (baseline.real if baseline.is_complex() else baseline).to(torch.float32)
    return bool(torch.allclose(y, o, rtol=PAPER_TOLERANCE, atol=PAPER_TOLERANCE))
