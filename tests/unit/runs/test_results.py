"""The result of a run for scripts, in a line, and the share of the gap to the bound that a kernel closes."""

import json

import msgspec
import pytest
from stored_runs import header

from arena.records.run_record import RunRecord, record_of, result_in
from arena.words.untrusted_text import one_line
from sandbox.protocol.events import Cancelled, Failure, Interval, Microseconds, Result, Roofline, Speedup
from sandbox.protocol.result import failure_words
from sandbox.protocol.verdict import Verdict

FAILURE = Failure(
    phase="check",
    message="output out: 3 of 64 elements wrong.",
    advice="Compare with the baseline.",
    rank=1,
    output="out",
    index=[3, 5],
    expected="1.5",
    got="\x1b[31mnan\n",
    wrong_share=3 / 64,
)
RESULT = Result(
    verdict=Verdict.WRONG_RESULT,
    detail="the referee's words",
    failure=FAILURE,
    paper_rule="mismatch",
    jail="none",
    sealed=True,
)
HEADER = header("r", problem_id=13, slug="gemm_allreduce", category="tensor", kernel_name="kernel.py", sha256="00")


def test_detail_names_phase_rank_index_values_and_advice() -> None:
    said = record_of(HEADER, msgspec.structs.replace(RESULT, detail=failure_words(FAILURE))).detail
    for words in ("check", "rank 1", "out[3, 5]", "expected 1.5", "got nan", "Compare with the baseline."):
        assert words in said
    assert "\x1b" not in said
    assert "\n" not in said


@pytest.mark.parametrize(("versus", "kept"), [("", RESULT), ("rival.py", None)])
def test_a_cancelled_pass_counts_without_rival(versus: str, kept: Result | None) -> None:
    event = Cancelled(run_id="r", phase="time", result=RESULT)
    assert result_in(msgspec.structs.replace(HEADER, versus=versus), event) == kept


def test_a_line_that_is_known_is_named_once() -> None:
    failure = Failure(phase="compile", message="SyntaxError at line 4", advice="", line=4)
    assert failure_words(failure) == "compile: SyntaxError at line 4"


def test_line_that_compiler_named_is_not_named_again() -> None:
    for line, more in ((6, ""), (12, "; line 12"), (2, "; line 2")):
        failure = Failure(phase="compile", message="kernel.py:6:12: no such name", advice="", line=line)
        said = failure_words(failure)
        assert said == "compile: kernel.py:6:12: no such name" + more


def test_one_line_has_no_control_characters() -> None:
    assert one_line("a\x1b[2J\r\nb\t c\x00") == "a b c"


def test_numbers_beyond_json_become_null() -> None:
    endless = Interval(median=float("inf"), low=float("nan"), high=1.0)
    result = msgspec.structs.replace(RESULT, speedup=Speedup(call=endless, device=None))
    said = json.loads(msgspec.json.encode(record_of(HEADER, result)))
    assert said["speedup"]["call"] == {"median": None, "low": None, "high": 1.0}


def record(median: float, low: float, percent: float, on_device: bool = True) -> RunRecord:
    """A kernel that is `median` times as fast as the baseline; end-to-end time differs from device time."""
    speed = Interval(median, low, median * 2)
    device, call = (speed, Interval(1.0, 0.9, 1.1)) if on_device else (None, speed)
    result = Result(
        verdict=Verdict.PASS, detail="", failure=None, speedup=Speedup(call=call, device=device),
        contender_us=Microseconds(call=20.0, device=10.0 if on_device else None),
        roofline=Roofline(bound_us=percent / 10, percent=percent, limiter="link"), sealed=True,
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
