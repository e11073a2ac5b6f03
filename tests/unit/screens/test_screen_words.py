"""Texts of the screens, tested without the app: wrapping below their own start, and no repeated messages."""

import re
from pathlib import Path

from msgspec.structs import replace
from stored_runs import record
from textual.content import Content

from arena.machine.finding import MachineFinding
from arena.records.ranking import Standing
from arena.records.report_text import output_of
from arena.sweep.grid import CellMark, Square
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Failure, Interval
from sandbox.protocol.verdict import Verdict
from screens import figures
from screens.dialogs import dialog
from screens.dialogs.doctor import finding_lines
from screens.kernel.status_words import best_words
from screens.sweep.screen import square_words
from screens.widgets.text_lines import hanging

TRACEBACK = 'Traceback (most recent call last):\n  File "kernel.py", line 3, in solution'


def test_a_text_beside_its_label_is_wrapped_below_itself() -> None:
    rows = [row.plain for row in hanging(Content("runs as"), Content("tiny · bfloat16 · 2 ranks on cpu"), 32, 10)]
    assert rows == ["runs as   tiny · bfloat16 · 2", "          ranks on cpu"]


def test_a_finding_and_its_advice_stay_in_their_column() -> None:
    finding = MachineFinding(
        "jail", "limited", "the jail rests on a uid of its own and the filter", "start it as a user"
    )
    rows = [row.plain for row in finding_lines(finding, 48)]
    assert rows[0].startswith("~ jail" + " " * 13 + "the jail")
    assert all(row.startswith(" " * 19) for row in rows[1:])
    assert "→ start it as a user" in rows[-1]


def test_the_message_of_a_failure_is_not_said_again_below_it() -> None:
    failure = Failure(
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


def test_a_result_that_was_never_right_is_not_called_the_best() -> None:
    problem = load_catalogue().find("1")
    last = record("r", verdict=Verdict.CRASH)
    wrong = Standing(problem_id=1, runs=1, solved=False, best=None, last=last)
    assert best_words(problem, wrong).startswith("your last ✗ crash · ")
    right = replace(wrong, solved=True, last=replace(last, verdict=Verdict.PASS))
    assert best_words(problem, right).startswith("your best ✓ correct · ")
    assert best_words(problem, None).startswith("not tried yet · ")


def test_a_cell_of_a_sweep_names_no_speedup_that_noise_hides() -> None:
    def words(outcome: str) -> str:
        mark = CellMark(
            run_id="", verdict="PASS", outcome=outcome, attempt=1, speedup=1.9, trace_id="", sha256="", one_size_only=False,
            holds="", seconds=1.0, usd=0.0,
        )  # fmt: skip
        return square_words(Square({1: mark}), 1)[0]

    assert words("faster") == "▲ 1.90×"
    assert words("too noisy") == "~ too noisy"


def test_the_keys_of_a_dialog_fit_60_columns() -> None:
    room = int(60 * 0.96) - 4  # a dialog's max-width, without its corners
    folder = Path(dialog.__file__).parents[1]
    sources = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    keys = [words for text in sources for words in re.findall(r'border_subtitle = "([^"]+)"', text)]
    assert len(keys) > 10
    assert [words for words in keys if len(words) > room] == []


def test_an_interval_without_an_answer_is_written_with_at_most_three_places() -> None:
    assert figures.speedup_words(Interval(median=1.0, low=0.0, high=5132104.0)) == "~ <0.01–>1000×"
    assert figures.speedup_words(Interval(median=1.0, low=0.49, high=2.1)) == "~ 0.49–2.10×"
