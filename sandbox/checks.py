"""How far an output is from the oracle, and how far it may be.

An output is right when its error against a float64 oracle is not much larger than the baseline's own error on the same
inputs: relative RMS at most 2.5 times, largest elementwise error at most 4 times, with floors of a rounding of the run
dtype. Integers, booleans and pure data movement (the baseline's error is zero) must match exactly. Absolute tolerances are
wrong in both directions: they reject kernels that accumulate in float32 and accept constants when values are small.
"""

from dataclasses import dataclass

import torch

from sandbox.events import OutputError
from sandbox.verdict import Verdict

RMS_FACTOR = 2.5
MAX_FACTOR = 4.0
CAP_ULPS = 32.0
PAPER_TOLERANCE = 1e-2
MAP_PARTS = 32


@dataclass(frozen=True)
class OwnError:
    """The baseline's error on one output, the largest over the iterations and ranks seen so far."""

    rms: float = 0.0
    max: float = 0.0

    def pooled(self, other: "OwnError") -> "OwnError":
        """The larger of the two, field by field."""
        return OwnError(max(self.rms, other.rms), max(self.max, other.max))


@dataclass(frozen=True)
class Limits:
    """What one output is held to. Both zero: bit-exact."""

    rms: float
    max: float
    exact: bool


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """float64 or complex128 copy for arithmetic; real and imaginary parts stay apart as a last dimension of 2."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128))
    return tensor.to(torch.float64)


def errors(got: torch.Tensor, oracle: torch.Tensor) -> OwnError:
    """Relative RMS and largest elementwise error, over elements where both are finite.

    Shapes equal; any floating or complex dtypes. rms: ‖y − y*‖ / ‖y*‖ (0/0 is 0). max: max |y − y*| / (|y*| + rms(y*)).
    """
    y, o = wide(got), wide(oracle)
    finite = torch.isfinite(y) & torch.isfinite(o)
    if not bool(finite.any()):
        return OwnError()
    y, o = y[finite], o[finite]
    difference = (y - o).abs()
    scale = float(o.square().mean().sqrt())
    off = float(difference.square().mean().sqrt())
    if scale == 0.0:
        largest = float(difference.max())
        return OwnError(float("inf") if off else 0.0, float("inf") if largest else 0.0)
    return OwnError(off / scale, float((difference / (o.abs() + scale)).max()))


def limits(dtype: torch.dtype, own: OwnError, rms_floor: float, max_floor: float, exact: bool) -> Limits:
    """What an output of this dtype is held to, given the baseline's own error and the problem's floors."""
    if exact or not (dtype.is_floating_point or dtype.is_complex):
        return Limits(0.0, 0.0, True)
    if own.rms == 0.0 and own.max == 0.0 and rms_floor == 0.0 and max_floor == 0.0:
        return Limits(0.0, 0.0, True)
    ulp = torch.finfo(dtype).eps
    floor = ulp / 2 if ulp > 1e-4 else ulp
    rms = min(max(RMS_FACTOR * own.rms, floor), max(CAP_ULPS * ulp, 1.25 * own.rms))
    largest = min(max(MAX_FACTOR * own.max, ulp), max(CAP_ULPS * ulp, 1.5 * own.max))
    return Limits(max(rms, rms_floor), max(largest, max_floor), False)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    # as_strided: a single element may be contiguous with any stride, which view() then refuses.
    return tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def _show(tensor: torch.Tensor, index: tuple[int, ...]) -> str:
    value = tensor[index].item()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def compare(
    name: str,
    got: torch.Tensor,
    baseline: torch.Tensor,
    oracle: torch.Tensor,
    own: OwnError,
    held: Limits,
) -> tuple[OutputError, Verdict]:
    """One output against the oracle (all three have the same shape; got and baseline the same dtype).

    Returns the figures for a screen, and PASS, WRONG_RESULT or NONFINITE.
    """
    total = got.numel()
    floating = got.dtype.is_floating_point or got.dtype.is_complex
    verdict = Verdict.PASS
    error = OwnError()
    if total == 0:
        wrong = torch.zeros_like(got, dtype=torch.bool)
    elif held.exact:
        element = got.element_size()
        wrong = (_bits(got).view(-1, element) != _bits(baseline).view(-1, element)).any(dim=1).view(got.shape)
        if floating:
            # -0.0 and 0.0 are the same number; NaN must be NaN.
            wrong &= ~((got == baseline) | ((got != got) & (baseline != baseline)))
            error = errors(got, oracle)
            if bool(_nonfinite_differs(wide(got), wide(baseline)).any()):
                verdict = Verdict.NONFINITE
        if bool(wrong.any()) and verdict is Verdict.PASS:
            verdict = Verdict.WRONG_RESULT
    else:
        y, o = wide(got), wide(oracle)
        rounded = wide(oracle.to(got.dtype))
        strange = _nonfinite_differs(y, wide(baseline)) & _nonfinite_differs(y, rounded)
        scale = float(o[torch.isfinite(o)].square().mean().sqrt()) if bool(torch.isfinite(o).any()) else 0.0
        beyond = (y - o).abs() > held.max * (o.abs() + scale)
        beyond &= torch.isfinite(y) & torch.isfinite(o)
        wrong = strange | beyond
        if got.dtype.is_complex:
            wrong = wrong.any(dim=-1)
        error = errors(got, oracle)
        if bool(strange.any()):
            verdict = Verdict.NONFINITE
        elif bool(beyond.any()) or not error.rms <= held.rms:
            verdict = Verdict.WRONG_RESULT
    count = int(wrong.sum())
    first: list[int] | None = None
    expected = shown = ""
    if verdict is not Verdict.PASS and total:
        flat = int(wrong.reshape(-1).to(torch.uint8).argmax()) if count else _worst(got, oracle)
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), got.shape)) if got.dim() else ()
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
        where=_map(wrong) if count else [],
    )
    return figures, verdict


def _nonfinite_differs(y: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    nan = torch.isnan(y) != torch.isnan(reference)
    infinite = (torch.isinf(y) | torch.isinf(reference)) & (y != reference)
    return nan | (infinite & ~torch.isnan(y) & ~torch.isnan(reference))


def _worst(got: torch.Tensor, oracle: torch.Tensor) -> int:
    difference = (wide(got) - wide(oracle)).abs()
    if got.dtype.is_complex:
        difference = difference.amax(dim=-1)
    return int(difference.nan_to_num(0.0, 0.0, 0.0).reshape(-1).argmax())


def _map(wrong: torch.Tensor) -> list[float]:
    flat = wrong.reshape(-1).to(torch.float32)
    return [round(float(part.mean()), 4) for part in flat.tensor_split(min(MAP_PARTS, flat.numel()))]


def paper_rule(got: torch.Tensor, baseline: torch.Tensor) -> bool:
    """Upstream's own rule, shown beside ours: allclose in float32 with atol = rtol = 1e-2, dtype and imaginary part ignored."""
    if got.shape != baseline.shape:
        return False
    y = (got.real if got.is_complex() else got).to(torch.float32)
    o = (baseline.real if baseline.is_complex() else baseline).to(torch.float32)
    return bool(torch.allclose(y, o, rtol=PAPER_TOLERANCE, atol=PAPER_TOLERANCE))
