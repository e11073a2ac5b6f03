"""Voids a result or its kernel, or takes that back."""

from collections.abc import Awaitable, Callable
from typing import Any

from textual.app import ComposeResult
from textual.widgets import Input, Select

from arena.paths import Paths, user
from arena.records.run_record import RunRecord
from arena.words.untrusted_text import printable
from screens.app_protocol import ask
from screens.dialogs import DecidingDialog, Dialog, field, one_of
from screens.dialogs.questions import Question
from screens.widgets.text_lines import PlainStatic

RESULT, KERNEL = "this result", "all players' results of this code"


class VoidDialog(DecidingDialog[tuple[bool, str] | None]):
    """Dismisses with (whether to void all results of the kernel, note)."""

    def __init__(self, entry: RunRecord) -> None:
        super().__init__()
        self._entry = entry

    def compose(self) -> ComposeResult:
        title = printable(f"Void · {self._entry.player} · {self._entry.sha256[:8]}")
        with self.frame(title, "enter voids · space opens the list · esc back"):
            yield field("note", Input(placeholder="why it is not earned", id="note", compact=True))
            yield field("what", one_of("what", (RESULT, KERNEL), RESULT))
            words = "It stays in the journal, struck out, in no standing and no score. x takes that back."
            yield PlainStatic(words, classes="below")

    def action_decide(self) -> None:
        note = self.query_one("#note", Input).value.strip()
        if note:
            self.dismiss((self.query_one("#what", Select).value == KERNEL, note))
        else:
            self.app.bell()
            self.app.notify("A void needs a note: say why the result is not earned.", severity="warning")
            self.query_one("#note").focus()


def ask_to_void(dialog: Dialog[Any], paths: Paths, entry: RunRecord, then: Callable[[], Awaitable[None]]) -> None:
    """Asks for a note to void a result or, if it is voided, whether to take that back. Then calls `then`."""

    def write(kernel: bool = False, note: str = "") -> None:
        dialog.change(lambda: _mark(paths, entry, kernel, note), then)

    if not (mark := entry.voided):
        ask(dialog, VoidDialog(entry), lambda answer: write(*answer))
        return
    what = "This result is" if mark.run else "All results of this code are"
    text = printable(f"{what} {mark.words}")
    question = Question("Take the mark back?", text, "count again", "leave it")
    ask(dialog, question, lambda yes: write() if yes else None)


def _mark(paths: Paths, entry: RunRecord, kernel: bool, note: str) -> None:
    """Voids the result or all results of its kernel; if it is voided, takes that back."""
    from arena.board.voiding import VoidTarget, unvoid, void

    if mark := entry.voided:
        unvoid(paths, VoidTarget(mark.run, mark.code, []), note, user())
    else:
        void(paths, VoidTarget("", entry.code, []) if kernel else VoidTarget(entry.run_id, "", []), note, user())
