"""The share of the gap between the baseline and the roofline's bound that a kernel closes."""

import msgspec
import pytest

from arena.records.bound import gap_closed
from sandbox.protocol.events import Interval, Microseconds, Result, Roofline, Seconds, Speedup
from sandbox.protocol.verdict import Verdict


def result(median: float, low: float, percent: float, on_device: bool = True) -> Result:
    """A kernel that is `median` times as fast as the baseline; end-to-end time differs from device time."""
    speed = Interval(median, low, median * 2)
    device, call = (speed, Interval(1.0, 0.9, 1.1)) if on_device else (None, speed)
    return Result(
        verdict=Verdict.PASS, detail="", failure=None, paper_rule=None, error=None, speedup=Speedup(call=call, device=device),
        baseline_us=None, contender_us=Microseconds(call=20.0, device=10.0 if on_device else None),
        roofline=Roofline(bound_us=percent / 10, percent=percent, limiter="link"), seconds=Seconds(), jail="", sealed=True,
    )  # fmt: skip


@pytest.mark.parametrize("on_device", [True, False])
@pytest.mark.parametrize(
    ("median", "low", "percent", "closed"),
    [
        (4.0, 3.0, 40.0, 3 / 3.6),  # baseline 40, kernel 10, bound 4 us
        (4.0, 3.0, 100.0, 1.0),
        (4.0, 3.0, 130.0, 1.0),  # faster than the bound: the measured peaks are too low
        (1.2, 0.9, 40.0, 0.0),  # the interval includes the same speed
        (0.5, 0.4, 20.0, 0.0),
        (0.9, 0.8, 95.0, None),  # the baseline is faster than the bound
    ],
)
def test_the_gap(median: float, low: float, percent: float, closed: float | None, on_device: bool) -> None:
    found = gap_closed(result(median, low, percent, on_device))
    assert found == (None if closed is None else pytest.approx(closed))


def test_without_a_roofline_there_is_no_gap() -> None:
    whole = result(4.0, 3.0, 40.0)
    assert gap_closed(msgspec.structs.replace(whole, roofline=None)) is None
    assert gap_closed(msgspec.structs.replace(whole, speedup=None)) is None
    assert gap_closed(msgspec.structs.replace(whole, contender_us=None)) is None
