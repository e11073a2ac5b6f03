"""Deadlines of all waits in the harness, in seconds, and the clock of the referee's side."""

import os
from dataclasses import dataclass
from typing import Protocol

START = 60.0
"""The start of a world: import of torch and the process group, on a cold and busy machine."""
PREPARE = 120.0
"""The oracle world's preparation of a new setting."""
BACKENDS = 30.0
"""The setup and measurement of other libraries' transfers."""
COMPILE = 120.0
HEALTH = 10.0
"""One tiny call of the oracle world on each GPU after a kernel was killed there."""
LEASE, IDLE_LEASE = 240.0, 120.0
"""The wait for another arena that is timing on the same devices, and for one that holds them without working."""
WITHOUT_CORE = 10.0
"""Most time without a core that extends a deadline. Other work on the machine or threads of the kernel cause it."""
SHORTEST, LONGEST = 0.05, 20.0
SHORTEST_BATCH = 0.5
"""A busy machine may leave a rank without a core for this long."""


def deadline_scale() -> float:
    """Returns the factor for the deadlines of loading, first calls and batches.

    It is PKB_DEADLINE_SCALE of the referee's environment: below 1 in tests, above 1 on a slow machine. Ranks do not get
    it."""
    try:
        scale = float(os.environ.get("PKB_DEADLINE_SCALE", "1"))
    except ValueError:
        return 1.0
    return min(max(scale, SHORTEST), LONGEST) if scale == scale else 1.0


@dataclass(frozen=True)
class TimeLimits:
    """Deadlines of a run's phases, which depend on the baseline's time per call."""

    load: float = 20.0
    first_call: float = 10.0
    batch: float = 2.0
    time: float = 30.0
    own: float = 60.0
    """The oracle world's work between batches."""

    @classmethod
    def for_baseline(cls, call_seconds: float, calls: int) -> "TimeLimits":
        """The limits for a baseline call of `call_seconds`, and `calls` per batch.

        First call: 10 s, or 100 baseline calls. Batch: 2 s, or 20 times the baseline's. The scale only lengthens `time` and
        `own`, because the number of batches and the comparison do not depend on the kernel."""
        scale = deadline_scale()
        return cls(
            load=scale * cls.load,
            first_call=max(cls.first_call * scale, 100 * call_seconds),
            batch=max(cls.batch * scale, SHORTEST_BATCH, 20 * call_seconds * calls),
            time=max(cls.time * max(scale, 1.0), 400 * call_seconds * calls),
            own=max(cls.own * max(scale, 1.0), 400 * call_seconds),
        )


class TimeSource(Protocol):
    """The functions of the module `time` that the referee's side uses. Tests replace them."""

    def monotonic(self) -> float:
        """Seconds since a fixed moment."""

    def perf_counter_ns(self) -> int:
        """Nanoseconds since a fixed moment, with the best resolution."""

    def sleep(self, seconds: float, /) -> None:
        """Blocks for this many seconds."""
