"""The result of a run for scripts: one line of detail with the place, the fault and the advice."""

import json

import msgspec

from arena.records.header import RunHeader
from arena.records.run_record import record_of
from arena.words.untrusted_text import one_line
from sandbox.protocol.events import Failure, Interval, Result, Seconds, Setting, Speedup
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
    error=None,
    speedup=None,
    baseline_us=None,
    contender_us=None,
    roofline=None,
    seconds=Seconds(),
    jail="none",
    sealed=True,
)
HEADER = RunHeader(
    run_id="r",
    created=0.0,
    problem_id=13,
    slug="gemm_allreduce",
    category="tensor",
    player="you",
    kernel_name="kernel.py",
    kernel_path="",
    sha256="00",
    source="",
    setting=Setting(problem_dir="/p", preset="tiny", sizes={"M": 2}, world=2, device="cpu", dtype="bfloat16"),
)


def test_detail_names_phase_rank_index_values_and_advice() -> None:
    said = record_of(HEADER, msgspec.structs.replace(RESULT, detail=failure_words(FAILURE))).detail
    for words in ("check", "rank 1", "out[3, 5]", "expected 1.5", "got nan", "Compare with the baseline."):
        assert words in said
    assert "\x1b" not in said
    assert "\n" not in said


def test_a_line_that_is_known_is_named_once() -> None:
    failure = Failure(phase="compile", message="SyntaxError at line 4", advice="", line=4)
    assert failure_words(failure) == "compile: SyntaxError at line 4"


def test_a_line_that_a_compiler_named_is_not_named_again() -> None:
    for line, more in ((6, ""), (12, "; line 12"), (2, "; line 2")):
        failure = Failure(phase="compile", message="kernel.py:6:12: no such name", advice="", line=line)
        said = failure_words(failure)
        assert said == "compile: kernel.py:6:12: no such name" + more


def test_one_line_has_no_control_characters() -> None:
    assert one_line("a\x1b[2J\r\nb\t c\x00") == "a b c"


def test_numbers_that_json_has_no_word_for_become_null() -> None:
    endless = Interval(median=float("inf"), low=float("nan"), high=1.0)
    result = msgspec.structs.replace(RESULT, speedup=Speedup(call=endless, device=None))
    said = json.loads(msgspec.json.encode(record_of(HEADER, result)))
    assert said["speedup"]["call"] == {"median": None, "low": None, "high": 1.0}
