"""The measurement `clock`: how turns of the plain loop and of the arena are compared."""

import math

import pytest
from stored_runs import result as run_result

from benchmarks.plain_loop.messages import Times
from benchmarks.plain_ranks import slowest
from benchmarks.plain_turns import PlainTimes
from benchmarks.tables.clock import FAILED, ByClock, ClockRow, Spread, conclude, ratios, within
from sandbox.protocol.events import Microseconds, Result
from sandbox.protocol.result import Batches, Samples


def result(call: float, device: float | None = None) -> Result:
    """A run of the arena whose baseline takes so many microseconds."""
    pair = Batches(calls=4, baseline_us=call, contender_us=1.0, baseline_first=True)
    return run_result(baseline_us=Microseconds(call=call, device=device), jail="none", samples=Samples(call=[pair]))


def row(problem: int, call: float | None = None, device: float | None = None, **changes: object) -> ClockRow:
    ratio = ByClock(*(None if value is None else Spread(value, value, value) for value in (call, device)))
    fields = {"verdict": "PASS", "ratio": ratio, "within": within(ratio)} | changes
    return ClockRow(id=problem, problem="x", preset="tiny", sizes={}, world=2, device="cpu", dtype="bfloat16", **fields)


def test_the_slowest_rank_counts_in_each_repetition():
    assert slowest([Times([1.0, 5.0]), Times([2.0, 3.0])]) == Times([2.0, 5.0])
    assert not slowest([Times([1.0]), Times([1.0], queued=False)]).queued


def test_arena_run_is_compared_with_turns_around_it():
    # The machine gets slower all the time, which favours neither side.
    plain = [PlainTimes(call=[us, us, 9 * us]) for us in (100.0, 121.0, 144.0)]
    ratio = ratios(plain, [result(110.0), result(132.0)], "call")
    assert ratio.median == pytest.approx(1.0)
    worse = ratios(plain, [result(110.0), result(264.0)], "call")
    assert (worse.low, worse.high) == (pytest.approx(110 / math.sqrt(12100)), pytest.approx(2.0))


def test_clock_that_one_side_lacks_is_not_compared():
    plain = [PlainTimes(call=[1.0], device=[1.0]), PlainTimes(call=[1.0])]
    assert ratios(plain, [result(1.0, device=1.0)], "device") is None
    assert ratios(plain, [result(1.0)], "device") is None
    assert within(ByClock(call=Spread(1.0, 1.0, 1.0))) == {"call": True}


def test_limits_are_ten_percent_call_and_five_device():
    assert within(row(1, 1.09, 1.04).ratio) == {"call": True, "device": True}
    assert within(row(1, 0.89, 0.94).ratio) == {"call": False, "device": False}


def test_the_rows_come_to_counts_by_clock():
    lost = row(64, verdict=FAILED, detail="plain rank 1 failed: out of memory")
    conclusion = conclude([row(1, 1.05, 1.2), row(8, 1.5), row(54, verdict="REFUSED"), lost])
    assert conclusion.lines == [
        "call within 10 % of the plain loop: 1 of 2; not 8",
        "device within 5 % of the plain loop: 0 of 1; not 1",
        "not measured: 64 (plain rank 1 failed: out of memory)",
    ]
    assert not conclusion.sound
    assert conclude([row(8, 1.5)]).sound
