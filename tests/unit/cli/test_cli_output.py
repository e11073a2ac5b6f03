"""A verdict in text: both clocks, and the baseline variants beside them."""

from typing import Any

import msgspec
import pytest
from stored_runs import record

from arena.cli.output import compact, counted, print_report, rendered
from arena.records.run_record import OtherSize, RunRecord, holds
from sandbox.protocol.events import Interval, Microseconds, Speedup
from sandbox.protocol.result import Energy, Errors, SideEnergy
from sandbox.protocol.verdict import Verdict
from sandbox.timing.conclusion import Unconfirmed, conclude


def report(device: Interval | None) -> RunRecord:
    on_device = (600.5, 495.4) if device else (None, None)
    return record(
        "r",
        kernel="mine.py",
        device="cuda",
        preset="production",
        outcome="faster",
        paper_rule="match",
        speedup=Speedup(call=Interval(1.17, 1.13, 1.26), device=device),
        baseline_us=Microseconds(call=625.2, device=on_device[0]),
        contender_us=Microseconds(call=533.7, device=on_device[1]),
        rounds=7,
        jail="root",
        sealed=False,
        beside={"baseline-graph": Microseconds(call=610.0, device=590.0)},
    )


def told(speedup: Speedup, **more: Any) -> RunRecord:
    """Returns a report with what the clocks say of a speedup."""
    said = conclude(speedup.call, speedup.device, **more).told
    return msgspec.structs.replace(report(speedup.device), speedup=speedup, outcome="even", clock="call", told=said)


AT_M = OtherSize(
    sizes={"M": 512, "N": 96}, dtype="float32", world=2, verdict=Verdict.PASS, run_id="a",
    outcome="faster", clock="call", speedup=Speedup(call=Interval(1.3, 1.2, 1.4), device=None),
)  # fmt: skip
WRONG_AT_N = msgspec.structs.replace(AT_M, verdict=Verdict.WRONG_RESULT, detail="rank 1", outcome="", speedup=None)
EVEN = "same speed by device time 1.00× [0.98, 1.02]; end-to-end time too noisy"
NOISY = {"outcome": "even", "clock": "device", "told": EVEN, "advice": "more rounds, a quieter machine"}
OTHERS = {"other_sizes": [AT_M, WRONG_AT_N], "holds_at_other_sizes": holds([AT_M, WRONG_AT_N])}
ENERGY = Energy(SideEnergy(650.0, 0.0612, 0.02), SideEnergy(512.0, 0.00035, 0.041))
UNSEEN = Energy(missing="no energy: 0.80 s are too short, the counter stepped once")
SINGLE = {"unconfirmed": Unconfirmed(Interval(9.0, 8.5, 9.5))}
REPORTS = {
    "both clocks": report(Interval(1.21, 1.19, 1.24)),
    "advice": msgspec.structs.replace(report(Interval(1.0, 0.98, 1.02)), **NOISY),
    "single calls": told(Speedup(call=Interval(1.0, 0.98, 1.02), device=None), **SINGLE),
    "slower by device time alone": told(Speedup(call=Interval(0.95, 0.89, 1.01), device=Interval(0.95, 0.93, 0.97))),
    "errors": msgspec.structs.replace(report(None), error=Errors(1.8e-3, 4e-3, 1.7e-3, 3.9e-3)),
    "energy": msgspec.structs.replace(report(None), energy=ENERGY),
    "no energy": msgspec.structs.replace(report(None), energy=UNSEEN),
    "other sizes": msgspec.structs.replace(report(None), **OTHERS),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_printed_whole_and_brief(name: str, capsys: pytest.CaptureFixture[str], snapshot: object) -> None:
    print_report(REPORTS[name])
    assert f"{capsys.readouterr().out}---\n{rendered(compact(REPORTS[name]))}" == snapshot


def test_a_report_without_energy_has_no_field() -> None:
    assert b"energy" not in msgspec.json.encode(report(None))


def test_number_has_its_thing_in_right_form() -> None:
    assert [counted(count, "result") for count in (0, 1, 2)] == ["0 results", "1 result", "2 results"]
