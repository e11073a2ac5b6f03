"""A verdict in text: both clocks, and the yardsticks beside them."""

import pytest

from arena.cli.output import print_report
from arena.results import RunReport
from sandbox.events import Interval, Microseconds, Seconds, Speedup
from sandbox.verdict import Verdict


def report(device: Interval | None) -> RunReport:
    on_device = (600.5, 495.4) if device else (None, None)
    return RunReport(
        run_id="r",
        problem="allreduce",
        id=1,
        category="collective",
        kernel="mine.py",
        sha256="0" * 64,
        device="cuda",
        world=2,
        dtype="bfloat16",
        preset="production",
        sizes={},
        verdict=Verdict.PASS,
        outcome="faster",
        detail="",
        failure=None,
        paper_rule="match",
        error=None,
        speedup=Speedup(call=Interval(1.17, 1.13, 1.26), device=device),
        baseline_us=Microseconds(call=625.2, device=on_device[0]),
        contender_us=Microseconds(call=533.7, device=on_device[1]),
        rounds=7,
        roofline=None,
        seconds=Seconds(),
        jail="root",
        sealed=False,
        labels=[],
        beside={"baseline-graph": Microseconds(call=610.0, device=590.0)},
    )


def test_the_device_time_and_the_yardsticks_have_lines_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_report(report(Interval(1.21, 1.19, 1.24)))
    out = capsys.readouterr().out
    assert "on the device 1.21×  [1.19, 1.24]   baseline 600.5 µs   kernel 495.4 µs" in out
    assert "beside it baseline-graph: 610.0 µs a call, 590.0 µs on the device" in out
    assert "not sealed · jail root" in out


def test_without_a_device_time_nothing_is_said_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(report(None))
    assert "on the device 1" not in capsys.readouterr().out
