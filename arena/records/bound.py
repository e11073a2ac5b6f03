"""The share of the gap between the baseline's time and the machine's bound that a kernel closes."""

from arena.records.report import RunReport
from arena.words.headline import by_clock
from sandbox.protocol.events import Result


def gap_closed(result: Result | RunReport) -> float | None:
    """Returns (baseline - kernel) / (baseline - bound), from 0 to 1, by the clock that percent of bound uses.

    0: the speedup's whole 99 % interval is not above 1. Noise therefore never counts as a closed gap.
    1: the kernel reaches the bound. None: there are no times or no roofline, or the baseline reaches the bound itself.
    """
    roofline, times = result.roofline, result.contender_us
    if roofline is None or times is None:
        return None
    speed = by_clock(result.speedup, "device" if times.device else "call")
    if speed is None:
        return None
    bound = roofline.percent / 100  # in units of the kernel's time; the baseline's time is `median` of them
    if speed.median <= bound:
        return None
    if speed.low <= 1:
        return 0.0
    return min(1.0, (speed.median - 1) / (speed.median - bound))
