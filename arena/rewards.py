"""A reward for reinforcement learning, from the report of a run."""

import math

from arena.runs.headline import by_clock
from arena.runs.results import RunReport
from sandbox.protocol.verdict import Verdict

LOWEST, HIGHEST = 0.0, 4.0
"""Of a right kernel; 4 is a kernel that is surely 16 times as fast as the baseline."""


def reward(report: RunReport, low: float = LOWEST, high: float = HIGHEST) -> float:
    """0 unless the kernel passed; else log2 of the low end of the speedup's 99 % interval, clipped to [low, high].

    The low end is what the measurement is sure of: noise earns nothing, and measuring longer earns what is there. A kernel
    that is right and not surely faster has 0 as a wrong one has, unless `low` is below 0; a run without timing has 0.
    """
    if report.verdict is not Verdict.PASS:
        return 0.0
    speed = by_clock(report.speedup, report.clock)
    if speed is None or not speed.low > 0:
        return 0.0
    return min(max(math.log2(speed.low), low), high)
