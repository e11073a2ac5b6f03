"""How long each phase may last. Every wait in the harness has one of these."""

from dataclasses import dataclass

START = 60.0
"""A world's start: import of torch and the process group, on a cold and busy machine."""
PREPARE = 120.0
"""The baseline's own side of a new setting."""
COMPILE = 120.0


@dataclass(frozen=True)
class Limits:
    """Seconds for the phases of a run, given the baseline's own time per call."""

    load: float = 20.0
    first_call: float = 10.0
    batch: float = 2.0
    time: float = 30.0
    own: float = 60.0
    """The trusted side's own work between batches."""

    @classmethod
    def for_baseline(cls, call_seconds: float, calls: int) -> "Limits":
        """first call: 10 s or 100 baseline calls; batch: 2 s or 20 times the baseline's."""
        return cls(
            first_call=max(10.0, 100 * call_seconds),
            batch=max(2.0, 20 * call_seconds * calls),
            time=max(30.0, 400 * call_seconds * calls),
            own=max(60.0, 400 * call_seconds),
        )
