"""The share of the gap between the baseline and the roofline's bound that a kernel closes."""

import msgspec
import pytest
from stored_runs import header

from arena.records.run_record import RunRecord, record_of
from sandbox.protocol.events import Interval, Microseconds, Result, Roofline, Seconds, Speedup
from sandbox.protocol.verdict import Verdict


def record(median: float, low: float, percent: float, on_device: bool = True) -> RunRecord:
    """A kernel that is `median` times as fast as the baseline; end-to-end time differs from device time."""
    speed = Interval(median, low, median * 2)
    device, call = (speed, Interval(1.0, 0.9, 1.1)) if on_device else (None, speed)
    result = Result(
        verdict=Verdict.PASS, detail="", failure=None, paper_rule=None, error=None, speedup=Speedup(call=call, device=device),
        baseline_us=None, contender_us=Microseconds(call=20.0, device=10.0 if on_device else None),
        roofline=Roofline(bound_us=percent / 10, percent=percent, limiter="link"), seconds=Seconds(), jail="", sealed=True,
    )  # fmt: skip
    return record_of(header("r", "x = 1"), result)


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
    found = record(median, low, percent, on_device).gap_closed
    assert found == (None if closed is None else pytest.approx(closed))


def test_without_a_roofline_there_is_no_gap() -> None:
    whole = record(4.0, 3.0, 40.0)
    assert msgspec.structs.replace(whole, roofline=None).gap_closed is None
    assert msgspec.structs.replace(whole, speedup=None).gap_closed is None
    assert msgspec.structs.replace(whole, contender_us=None).gap_closed is None
