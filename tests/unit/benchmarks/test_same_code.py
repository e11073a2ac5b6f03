"""Runs of identical code, on CPU ranks and on GPUs; what was known after some seconds of timing."""

import pytest
from stored_runs import run_row

from benchmarks.rows import REFUSED, RunRow
from benchmarks.tables.precision import SECONDS, points
from benchmarks.tables.same_code import conclude
from sandbox.protocol.events import Interval, Microseconds
from sandbox.protocol.result import Batches, Samples

WIDE, NARROW = (1.01, 0.50, 2.04), (1.01, 0.98, 1.03)


def itself(outcome: str, call: tuple[float, float, float] = NARROW, verdict: str = "PASS", problem: int = 13) -> RunRow:
    """A run of a baseline against itself."""
    times = Microseconds(call=40.0, device=20.0) if verdict == "PASS" else None
    device = Interval(1.001, 0.99, 1.01)
    return run_row(verdict, outcome, Interval(*call), device, id=problem, kernel="baseline", baseline_us=times)


def test_runs_add_up_to_shares_by_clock():
    rows = [itself("even"), itself("faster", (1.1, 1.05, 1.2))]
    rows += [itself("too noisy", WIDE, problem=8), itself("too noisy", WIDE, problem=8)]
    lines = conclude(rows).lines
    assert [line.split(":")[0] for line in lines[:3]] == ["13 gemm_allreduce", "08 gemm_allreduce", "all"]
    assert (
        lines[3]
        == "all, call: 25.0 % faster, 0.0 % slower, 25.0 % even, 50.0 % too noisy; 1 inside 75.0 % of 4 intervals"
    )
    assert "100.0 % even" in lines[4]
    assert lines[5] == "too noisy in more than half of the runs: 1 of 2 problems: 8"


def test_interval_allows_one_wrong_run_in_hundred():
    assert conclude([itself("faster"), *[itself("even")] * 9]).sound
    assert not conclude([itself("faster"), itself("slower"), *[itself("even")] * 98]).sound
    assert conclude([itself("faster"), itself("slower"), *[itself("even")] * 198]).sound


def test_failed_or_faster_run_is_fault_unless_refused():
    assert not conclude([itself("", verdict="CRASH")]).sound
    assert itself("", verdict="TIMEOUT").fault
    assert itself("faster", (1.1, 1.05, 1.2)).fault
    assert not itself("slower", (0.95, 0.93, 0.98)).fault
    assert conclude([itself("", verdict=REFUSED)]).sound
    assert conclude([]).lines == []


def pairs(count: int, every_s: float, us: float) -> list[Batches]:
    """Pairs of ten calls on either side, one every so many seconds."""
    return [Batches(10, us, us * (0.99, 1.01)[n % 2], n % 4 < 2, n % 3, every_s * (n + 1)) for n in range(count)]


def test_pairs_and_duty_are_those_until_then() -> None:
    found = points(Samples(call=pairs(30, 0.1, 1000.0), device=pairs(6, 0.5, 500.0)))
    assert [point.seconds for point in found] == [*(each for each in SECONDS if each <= 3.0), 3.0]
    assert [(point.call_pairs, point.device_pairs) for point in found] == [(10, 2), (25, 5), (30, 6)]
    assert found[-1].duty == pytest.approx((30 * 20e-3 + 6 * 10e-3) / 3.0, rel=0.01)
    assert found[-2].call is None or (found[-1].call is not None and found[-1].call < found[-2].call)
