"""A verdict in text: both clocks, and the baseline variants beside them."""

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


def test_device_time_and_baseline_variants_have_own_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(report(Interval(1.21, 1.19, 1.24)))
    out = capsys.readouterr().out
    assert "end-to-end: 1.17× [1.13, 1.26]; baseline 625.2 µs, kernel 533.7 µs a call; smallest" in out
    assert "device time: 1.21× [1.19, 1.24]; baseline 600.5 µs, kernel 495.4 µs a call; smallest" in out
    assert "baseline variant baseline-graph: 610.0 µs a call, 590.0 µs device time" in out
    assert "isolation: jail root, inputs not sealed" in out


def test_both_clocks_are_said_once_before_advice(capsys: pytest.CaptureFixture[str]) -> None:
    told = "same speed by device time 1.00× [0.98, 1.02]; end-to-end time too noisy"
    judged = msgspec.structs.replace(
        report(Interval(1.0, 0.98, 1.02)),
        outcome="even",
        clock="device",
        told=told,
        advice="more rounds, a quieter machine",
    )
    print_report(judged)
    out = capsys.readouterr().out
    assert out.splitlines()[0] == f"✓ PASS   ≈ {told}"
    assert out.count(told) == 1
    assert "kernel 495.4 µs a call; smallest detectable difference 3 %\n" in out
    assert "to reduce noise: measure longer (--rounds or --seconds), a quieter machine" in out
    assert rendered(compact(judged)) == (
        f"✓ PASS  ≈ {told}  to reduce noise: measure longer (--rounds or --seconds), a quieter machine  (0.00 s)"
    )


def test_result_of_single_calls_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    call, batches = Interval(1.0, 0.98, 1.02), Interval(9.0, 8.5, 9.5)
    told = conclude(call, None, unconfirmed=Unconfirmed(batches)).told
    single = msgspec.structs.replace(report(None), told=told)
    print_report(single)
    out = capsys.readouterr().out
    assert "same speed end-to-end 1.00× [0.98, 1.02]" in out.splitlines()[0]
    assert out.splitlines()[1].startswith("These are single calls: batches of many calls gave 9.00× [8.50, 9.50]")
    assert "These are single calls" in compact(single)


def test_sign_is_that_of_what_is_read_first() -> None:
    both = Speedup(call=Interval(0.95, 0.89, 1.01), device=Interval(0.95, 0.93, 0.97))
    told = conclude(both.call, both.device).told
    judged = msgspec.structs.replace(report(both.device), speedup=both, outcome="even", clock="call", told=told)
    assert "▼ 0.95× slower by device time [0.93, 0.97]; end-to-end no difference shown" in compact(judged)


def test_errors_stand_beside_the_baselines(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(msgspec.structs.replace(report(None), error=Errors(1.8e-3, 4e-3, 1.7e-3, 3.9e-3), paper_rule="match"))
    out = capsys.readouterr().out
    assert "rms 1.80e-03 (the baseline's 1.70e-03), largest 4.00e-03 (the baseline's 3.90e-03)\n" in out
    assert "paper rule: match\n" in out


def test_energy_has_line_with_its_error_or_reason(capsys: pytest.CaptureFixture[str]) -> None:
    base, mine = SideEnergy(650.0, 0.0612, 0.02), SideEnergy(512.0, 0.00035, 0.041)
    print_report(msgspec.structs.replace(report(None), energy=Energy(base, mine)))
    assert (
        "energy a call, all GPUs: baseline 61.2 mJ, kernel 350 µJ; power of a GPU 650 W and 512 W (±4 %)\n"
        in capsys.readouterr().out
    )
    why = "no energy: 0.80 s are too short, the counter stepped once"
    print_report(msgspec.structs.replace(report(None), energy=Energy(missing=why)))
    assert f"{why}\n" in capsys.readouterr().out
    assert b"energy" not in msgspec.json.encode(report(None))


def test_other_sizes_have_lines_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    first = OtherSize(
        sizes={"M": 512, "N": 96}, dtype="float32", world=2, verdict=Verdict.PASS, run_id="a",
        outcome="faster", clock="call", speedup=Speedup(call=Interval(1.3, 1.2, 1.4), device=None),
    )  # fmt: skip
    second = msgspec.structs.replace(first, verdict=Verdict.WRONG_RESULT, detail="rank 1", outcome="", speedup=None)
    others = [first, second]
    print_report(msgspec.structs.replace(report(None), other_sizes=others, holds_at_other_sizes=holds(others)))
    out = capsys.readouterr().out
    assert "other sizes: made for one size: right here, not everywhere\n" in out
    assert "other size: ✓ M=512 N=96 float32 world 2 ▲ 1.30× [1.20, 1.40] faster end-to-end\n" in out
    assert "other size: ✗ M=512 N=96 float32 world 2 WRONG_RESULT: rank 1\n" in out


def test_number_has_its_thing_in_right_form() -> None:
    assert [counted(count, "result") for count in (0, 1, 2)] == ["0 results", "1 result", "2 results"]
