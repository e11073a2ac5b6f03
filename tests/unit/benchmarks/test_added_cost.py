"""The measurement `ab`: kernels with a known added cost, and the conclusions from their runs."""

import types
from typing import Any

import pytest
from stored_runs import run_row

from benchmarks.costly_kernels import found_added_us, with_device_cost, with_host_cost
from benchmarks.rows import RunRow
from benchmarks.tables.added_cost import SHARES, TABLE, AddedCost, AddedCostRow, costs, row_of
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Interval, Microseconds

CATALOGUE = load_catalogue()


@pytest.mark.problems
@pytest.mark.parametrize("problem", CATALOGUE.problems, ids=lambda problem: problem.stem)
def test_every_baseline_takes_a_cost(problem: Any) -> None:
    for text in (with_host_cost(problem, 0.2), with_device_cost(problem, 3.25)):
        compile(text, problem.stem, "exec")
        assert text.count("\ndef solution(") == 1
        assert text.count("\ndef _baseline_solution(") == 1


def test_host_cost_is_share_of_what_call_took() -> None:
    text = with_host_cost(CATALOGUE.find("13"), 0.5)
    added = text[text.index("# --- the cost") :]
    module = types.ModuleType("kernel")
    ticks = 0

    def baseline(*arguments: object) -> object:
        nonlocal ticks
        ticks += 1000
        return arguments

    def now() -> int:
        nonlocal ticks
        ticks += 1
        return ticks

    exec(added, module.__dict__)
    module.__dict__.update(_baseline_solution=baseline, _time=types.SimpleNamespace(perf_counter_ns=now))
    assert module.__dict__["solution"]("a", 2) == ("a", 2)
    assert 1500 <= ticks <= 1505


def test_cost_is_expected_where_it_can_be_seen() -> None:
    on_cpu = costs(Microseconds(call=900.0, device=None))
    assert [(cost.kind, cost.share, cost.expected) for cost in on_cpu] == [("host", share, "call") for share in SHARES]
    host_bound = costs(Microseconds(call=60.0, device=20.0))
    assert {(cost.kind, cost.expected) for cost in host_bound} == {("host", "call"), ("device", "device")}
    assert host_bound[-1].added_us == pytest.approx(10.0)
    device_bound = costs(Microseconds(call=101.0, device=100.0))
    assert {(cost.kind, cost.expected) for cost in device_bound} == {("host", ""), ("device", "device")}
    waits = costs(Microseconds(call=1000.0, device=None))
    assert {(cost.kind, cost.expected) for cost in waits} == {("host", "call")}


def run(call: float, device: float | None = None, outcome: str = "slower", verdict: str = "PASS") -> RunRow:
    """A run against a baseline of 60 us end-to-end and 20 us device time a call. Its intervals are ±2 %."""
    call_ratio, device_ratio = (value and Interval(value, value * 0.98, value * 1.02) for value in (call, device))
    times = Microseconds(call=60.0, device=20.0) if verdict == "PASS" else None
    return run_row(verdict, outcome, call_ratio, device_ratio, kernel="host_20", preset="tiny", baseline_us=times)


def on_host(call: float, device: float | None = None, outcome: str = "slower") -> AddedCostRow:
    return row_of(run(call, device, outcome), AddedCost("host", 0.2, "call"), None)


def test_truth_of_host_cost_is_its_share() -> None:
    row = on_host(0.83, 1.0)
    assert row.truth == pytest.approx(1 / 1.2)
    assert (row.outcome_by("call"), row.outcome_by("device"), row.holds) == ("slower", "even", True)
    assert on_host(0.9).holds is False
    assert "slower holds" in TABLE.line(row)
    assert "slower MISSES" in TABLE.line(on_host(0.9))


def test_truth_of_device_cost_is_what_kernel_found() -> None:
    cost, ran = AddedCost("device", 0.2, "device", 4.0), run(1.0, 0.8)
    row = row_of(ran, cost, found_added_us("[rank 0] added 3.1 us\n[rank 1] added 5.0 us\n"))
    assert (row.truth, row.added_us, row.holds) == (pytest.approx(0.8), 5.0, True)
    assert row_of(ran, cost, found_added_us("[rank 0] nothing")).truth == pytest.approx(20 / 24)
