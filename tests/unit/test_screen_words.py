"""Words of the screens that need no app: what is wrapped below itself, and what is not said twice."""

from msgspec.structs import replace
from textual.content import Content

from arena.machine.finding import MachineFinding
from arena.runs.results import output_of
from sandbox.protocol.events import Failure
from screens.dialogs.doctor import finding_lines
from screens.widgets.hanging import hanging

TRACEBACK = 'Traceback (most recent call last):\n  File "kernel.py", line 3, in solution'


def test_a_text_beside_its_label_is_wrapped_below_itself() -> None:
    rows = [
        row.plain for row in hanging(Content("runs as"), Content("tiny · bfloat16 · 2 ranks on cpu"), 32, 10)
    ]
    assert rows == ["runs as   tiny · bfloat16 · 2", "          ranks on cpu"]


def test_a_finding_and_its_advice_stay_in_their_column() -> None:
    finding = MachineFinding(
        "jail", "limited", "the walls rest on a uid of their own and the filter", "start it as a user"
    )
    rows = [row.plain for row in finding_lines(finding, 48)]
    assert rows[0].startswith("~ jail" + " " * 13 + "the walls")
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
    assert (
        output_of(replace(failure, text="gcc: warning\nkernel.py:3: error"))
        == "gcc: warning\nkernel.py:3: error"
    )
