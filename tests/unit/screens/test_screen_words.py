"""Texts of the screens, tested without the app."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from run_states import fold
from stored_runs import record
from textual.content import Content
from textual.geometry import Size

from arena.machine.finding import MachineFinding
from arena.records.ranking import Standing, standing_of
from arena.records.report_text import output_of
from problems.catalogue import load_catalogue
from sandbox.protocol import events
from sandbox.protocol.result import Result, Seconds
from sandbox.protocol.verdict import Verdict
from screens import dialogs as dialog
from screens import figures
from screens.dialogs.doctor import finding_lines
from screens.kernel.headline import best_words
from screens.kernel.panes.failure_view import with_marks_in_view
from screens.kernel.phase_line import PhaseLine, fitting, phase_parts
from screens.kernel.run_update import lines_of
from screens.palette import fit
from screens.widgets.text_lines import hanging

TRACEBACK = 'Traceback (most recent call last):\n  File "kernel.py", line 3, in solution'


def test_text_beside_its_label_is_wrapped_below_itself() -> None:
    rows = [row.plain for row in hanging(Content("runs as"), Content("tiny · bfloat16 · 2 ranks on cpu"), 32, 10)]
    assert rows == ["runs as   tiny · bfloat16 · 2", "          ranks on cpu"]


def test_finding_and_its_advice_stay_in_their_column() -> None:
    finding = MachineFinding(
        "jail", "limited", "the jail rests on a uid of its own and the filter", "start it as a user"
    )
    rows = [row.plain for row in finding_lines(finding, 48)]
    assert rows[0].startswith("~ jail" + " " * 13 + "the jail")
    assert all(row.startswith(" " * 19) for row in rows[1:])
    assert "→ start it as a user" in rows[-1]


def test_message_of_failure_is_not_repeated_below() -> None:
    failure = events.Failure(
        phase="check",
        advice="",
        message="an exception ended solution(): ValueError: no",
        text=f"ValueError: no\n\n{TRACEBACK}\nValueError: no\n",
    )
    assert output_of(failure) == TRACEBACK
    assert output_of(replace(failure, text="ValueError: no")) == ""
    # A cut message: only the end of the traceback has all of it.
    cut = replace(failure, message="an exception ended solution(): ValueError: n")
    assert output_of(cut) == f"{TRACEBACK}\nValueError: no"
    assert output_of(replace(failure, text="gcc: warning\nkernel.py:3: error")) == "gcc: warning\nkernel.py:3: error"


def test_result_never_right_is_not_called_best() -> None:
    problem = load_catalogue().find("1")
    last = record("r", verdict=Verdict.CRASH)
    wrong = Standing(problem_id=1, runs=1, solved=False, best=None, last=last)
    assert best_words(problem, wrong, None, "F8").startswith("your last ✗ crash · ")
    right = replace(wrong, solved=True, last=replace(last, verdict=Verdict.PASS))
    assert best_words(problem, right, right, "F8").startswith("your best ✓ pass · house ✓ pass · ")
    often = standing_of(1, [record(f"r{at}", faster=1.5 + at / 100) for at in range(3)])
    assert best_words(problem, often, None, "F8").startswith("your best ▲ 1.51× in 3 runs · ")
    assert best_words(problem, None, None, "F8").startswith("not timed yet · F8: against the house · ")


def test_the_keys_of_a_dialog_fit_60_columns() -> None:
    room = int(60 * 0.96) - 4  # a dialog's max-width, without its corners
    folder = Path(dialog.__file__).parents[1]
    sources = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    keys = [words for text in sources for words in re.findall(r'"([^"{\n]+ · esc[^"{\n]*)"', text)]
    assert len(keys) > 10
    assert [words for words in keys if len(words) > room] == []


def test_figures_are_short() -> None:
    assert figures.clock(521.9) == "8:41"
    assert figures.speedup_words(events.Interval(median=1.0, low=0.0, high=5132104.0)) == "~ <0.01–>1000×"
    assert figures.speedup_words(events.Interval(median=1.0, low=0.49, high=2.1)) == "~ 0.49–2.10×"


LINE = "    total = first(tensor) + second(tensor undefined)"


def marked(words: str) -> str:
    return f"{LINE}\n{' ' * LINE.index(words)}{'^' * len(words)}"


def test_lines_that_fit_or_have_no_carets_stay():
    text = f"Traceback:\n{LINE}\nNameError: undefined"
    assert with_marks_in_view(text, 20) == text
    assert with_marks_in_view(marked("undefined"), 60) == marked("undefined")
    assert with_marks_in_view(marked("total"), 20) == marked("total")


@pytest.mark.parametrize("words", ["second", "undefined", "tensor undefined"])
@pytest.mark.parametrize("width", [20, 24, 30])
def test_marked_words_stay_visible_above_their_marks(words, width):
    line, marks = with_marks_in_view(marked(words), width).split("\n")
    assert line.startswith("…")
    begin, end = marks.index("^"), len(marks)
    assert end < width
    assert line[begin:end] == words


def test_beginning_of_wide_words_is_in_view():
    line, marks = with_marks_in_view(marked("second(tensor undefined"), 12).split("\n")
    assert line.startswith("…second(")
    assert marks.startswith(" ^^^")


def test_compilers_print_a_bar_before_their_carets():
    line, marks = with_marks_in_view(
        "12 |     sum += of_a_long_name(nowhere);\n   |            ^~~~~~~~~~~~~~", 24
    ).split("\n")
    assert line[marks.index("^") :].startswith("of_a_long_name")


PASSED = Path(__file__).parents[2] / "ui" / "recordings" / "pass.jsonl"


def test_the_referees_own_words_belong_to_no_rank() -> None:
    (line,) = lines_of(events.Log(run_id="r", rank=-1, text="this one waits\n"))
    assert (line.text, line.rank, line.kind) == ("this one waits", None, "note")


@pytest.mark.parametrize(
    ("query", "name", "sentence"),
    [
        ("theme", "copy path", "Copy the path of the kernel's file: any editor may edit it, every save is judged."),
        ("x", "next", "Next view"),
        ("next page", "next", "Next view"),
        ("", "next", ""),
    ],
)  # fmt: skip
def test_scattered_letters_are_no_fit(query: str, name: str, sentence: str) -> None:
    assert fit(query, name, sentence) == 0


def test_names_match_before_sentences_and_letters_in_order() -> None:
    assert fit("vim", "vim") > fit("vim", "settings", "keys, vim") > fit("vim", "35 all_gather_variable_primitive") > 0
    assert fit("gar", "13 gemm_allreduce") > fit("gar", "13", "gemm ar") == 0


PHASES = [("✓ load 0.08", ""), ("· compile", ""), ("✓ check 0.19", ""), ("▸ time 1.2/31 s", ""), ("esc cancels", "")]


def texts(width: int) -> list[str]:
    return [text for text, _ in fitting(PHASES, width)]


def test_missing_phases_go_first_then_oldest_but_current():
    assert texts(80) == [text for text, _ in PHASES]
    assert texts(64) == ["✓ load 0.08", "✓ check 0.19", "▸ time 1.2/31 s", "esc cancels"]
    assert texts(50) == ["✓ check 0.19", "▸ time 1.2/31 s", "esc cancels"]
    assert texts(35) == texts(5) == ["▸ time 1.2/31 s", "esc cancels"]


def test_wait_keeps_seconds_and_key_before_its_subject():
    waits = [
        ("✓ load 0.15", ""), ("▸ Waiting: another run is timing 29 s", ""),
        ("(gemm_allreduce of root, process 6191, since 10:30:40)", ""), ("esc cancels", ""),
    ]  # fmt: skip
    assert fitting(waits, 160) == waits
    assert fitting(waits, 110) == waits[1:]
    assert fitting(waits, 98) == [waits[0], waits[1], waits[3]]
    assert fitting(waits, 58) == [waits[1], waits[3]]


def test_phase_whose_compiling_goes_on_has_not_failed():
    """Kernels for GPUs compile in their first call, which is part of the correctness check."""
    setting = events.Setting(problem_dir="p", preset="tiny", sizes={}, world=2, device="cuda", dtype="bfloat16")
    state = fold(
        [
            events.RunStarted(run_id="r", setting=setting, kernel_name="kernel.py", sha256="", at=1.0),
            events.PhaseStarted(run_id="r", phase="load", limit_s=5.0, at=1.0),
            events.PhaseEnded(run_id="r", phase="load", seconds=0.5, at=1.5),
            events.PhaseStarted(run_id="r", phase="check", limit_s=5.0, at=1.5),
            events.PhaseStarted(run_id="r", phase="compile", limit_s=60.0, at=1.6),
        ]
    )
    words = [text for text, _ in phase_parts(state, 2.0)]
    assert words == ["✓ load 0.50", "▸ compile 0.4 s", "▸ check", "· time"]
    state.apply(events.PhaseEnded(run_id="r", phase="compile", seconds=0.9, at=2.5))
    words = [text for text, _ in phase_parts(state, 2.6)]
    assert words == ["✓ load 0.50", "✓ compile 0.90", "▸ check 1.1 s", "· time"]


def test_timing_that_a_person_ended_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = events.Setting(problem_dir="p", preset="tiny", sizes={}, world=2, device="cpu", dtype="bfloat16")
    known = dict.fromkeys(Result.__struct_fields__[:9], None) | {"verdict": Verdict.PASS, "seconds": Seconds(time=4.0)}
    result = Result(**known, sealed=True)
    state = fold(
        [
            events.RunStarted(run_id="r", setting=setting, kernel_name="kernel.py", sha256="", at=1.0),
            events.PhaseStarted(run_id="r", phase="time", limit_s=5.0, at=1.0),
            events.Judged(run_id="r", sha256="", result=result, at=3.0),
        ]
    )
    assert phase_parts(state, 9.0, most_s=2.5)[-1][0] == "▸ time 8.0 s"  # measuring goes on, so no limit is told
    state.apply(events.Waiting(run_id="r", at=4.0))
    said: list[str] = []
    monkeypatch.setattr(PhaseLine, "content_size", Size(58, 1))
    monkeypatch.setattr(PhaseLine, "update_if_new", lambda _, words: said.append(words.plain.rstrip()))
    PhaseLine().show(state, 11.0, "measuring on · ctrl+b ends it")
    assert said == ["▸ Waiting: another run is timing 7 s  ctrl+b ends it"]
    call = events.Interval(1.5, 1.4, 1.6)
    state.apply(
        events.Timed(run_id="r", round=1, rounds=9, calls=1, baseline_us=1.0, contender_us=1.0, call=call, at=7.0)
    )
    assert phase_parts(state, 9.0)[-1][0] == "▸ time 5.0 s · round 1/9"  # without the time of waiting
    state.apply(events.Finished(run_id="r", sha256="", result=result, at=9.0))
    assert phase_parts(state, 9.0)[-1][0] == "✓ time 4.00"
