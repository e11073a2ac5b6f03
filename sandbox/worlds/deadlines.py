"""Deadlines of all waits in the harness."""

import os
from dataclasses import dataclass

START = 60.0
"""A world's start: import of torch and the process group, on a cold and busy machine."""
PREPARE = 120.0
"""The baseline's own side of a new setting."""
COMPILE = 120.0
HEALTH = 10.0
"""One tiny call of the baseline world on each GPU after a kernel was killed there."""
TURN = 240.0
"""Until another arena on this machine has finished its timing."""
WITHOUT_CORE = 10.0
"""Time for which ranks are ready to run and have no core does not count, up to so much: the machine's doing, or that of threads
that a kernel has started."""
SHORTEST, LONGEST = 0.05, 20.0
SHORTEST_BATCH = 0.5
"""A busy machine may keep a rank waiting for a core so long, however short the kernel."""


def patience() -> float:
    """PKB_DEADLINE_SCALE, as the referee's environment has it: a factor for the time that a kernel may take to load, for
    its first call and for a batch. Below 1 in tests, above 1 on a slow machine. No rank sees it."""
    try:
        scale = float(os.environ.get("PKB_DEADLINE_SCALE", "1"))
    except ValueError:
        return 1.0
    return min(max(scale, SHORTEST), LONGEST) if scale == scale else 1.0


@dataclass(frozen=True)
class TimeLimits:
    """Seconds for the phases of a run, given the baseline's own time per call."""

    load: float = 20.0
    first_call: float = 10.0
    batch: float = 2.0
    time: float = 30.0
    own: float = 60.0
    """The trusted side's own work between batches."""

    @classmethod
    def for_baseline(cls, call_seconds: float, calls: int) -> "TimeLimits":
        """first call: 10 s or 100 baseline calls; batch: 2 s or 20 times the baseline's. The phase of timing and the trusted
        side's own work are only ever given more time: many batches, and a slow machine's own comparing, have to fit."""
        scale = patience()
        return cls(
            load=scale * cls.load,
            first_call=max(cls.first_call * scale, 100 * call_seconds),
            batch=max(cls.batch * scale, SHORTEST_BATCH, 20 * call_seconds * calls),
            time=max(cls.time * max(scale, 1.0), 400 * call_seconds * calls),
            own=max(cls.own * max(scale, 1.0), 400 * call_seconds),
        )
