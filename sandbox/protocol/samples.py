"""The pairs of batches behind the figures of a result."""

import msgspec


class Batches(msgspec.Struct, frozen=True):
    """A pair of batches of the same iterations, in microseconds per call, without the harness overhead."""

    calls: int
    baseline_us: float
    contender_us: float
    baseline_first: bool
    reference: int = 0
    """Index of the reference world."""


class Samples(msgspec.Struct, frozen=True):
    """All pairs of a run, by clock."""

    call: list[Batches] = []
    device: list[Batches] = []
    harness_us: float = 0.0
    """Harness overhead per call in end-to-end time, already subtracted."""
    empty_gate_us: float = 0.0
    """Harness overhead per batch in device time: the gate and the output copies."""
    foreign_us: dict[str, list[float]] = {}
    """Longest foreign work on the GPUs before each watched batch, by kind of batch."""
