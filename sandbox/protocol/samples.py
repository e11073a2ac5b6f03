"""Every pair of batches that the figures of a result are made of."""

import msgspec


class Batches(msgspec.Struct, frozen=True):
    """A pair of batches of the same iterations by one clock, microseconds a call, the harness's own time taken off."""

    calls: int
    baseline_us: float
    contender_us: float
    baseline_first: bool
    reference: int = 0
    """Which of the worlds that run the baseline."""


class Samples(msgspec.Struct, frozen=True):
    """Every round that the medians are made of."""

    call: list[Batches] = []
    device: list[Batches] = []
    harness_us: float = 0.0
    """What starting a batch and copying its outputs take a call of the call time; taken off already."""
    empty_gate_us: float = 0.0
    """The same a batch of device time: the gate itself, and the copies."""
    foreign_us: dict[str, list[float]] = {}
    """Before each batch, by its kind: the longest moment in which other work had the GPUs."""
