"""Computes a reward for reinforcement learning from the report of a run."""

import math

from arena.records.run_record import RunRecord
from arena.words.headline import by_clock
from sandbox.protocol.verdict import Verdict

LOWEST, HIGHEST = 0.0, 4.0
"""Limits of a correct kernel's reward. 4: the low end of the interval is 16 times the baseline's speed."""


def reward(report: RunRecord, low: float = LOWEST, high: float = HIGHEST) -> float:
    """Returns log2 of the low end of the speedup's 99 % interval, clipped to [low, high]; 0 if not passed.

    The low end excludes what may be noise, and rises towards the speedup when measured longer. A correct kernel that is
    not clearly faster gets 0, as a wrong kernel does, unless `low` is below 0. A run without timing gets 0.
    """
    if report.verdict is not Verdict.PASS:
        return 0.0
    speed = by_clock(report.speedup, report.clock)
    if speed is None or not speed.low > 0:
        return 0.0
    return min(max(math.log2(speed.low), low), high)
