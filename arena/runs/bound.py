"""The share of the gap between the baseline's time and the machine's bound that a kernel closes."""

from arena.runs.headline import by_clock
from arena.runs.results import RunReport
from sandbox.protocol.events import Result


def gap_closed(result: Result | RunReport) -> float | None:
    """(baseline - kernel) / (baseline - bound), of the times that percent of bound is made of; from 0 to 1.

    0: the kernel is not faster than the baseline by its whole 99 % interval, so that noise closes nothing.
    1: the kernel reaches the bound. None: there is no roofline, or the baseline reaches the bound itself.
    """
    roofline, times = result.roofline, result.contender_us
    if roofline is None or times is None:
        return None
    speed = by_clock(result.speedup, "device" if times.device else "call")
    if speed is None:
        return None
    bound = roofline.percent / 100  # of the kernel's time; the baseline's is `median` of it
    if speed.median <= bound:
        return None
    if speed.low <= 1:
        return 0.0
    return min(1.0, (speed.median - 1) / (speed.median - bound))
