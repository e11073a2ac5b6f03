"""The failure of a kernel, shown in place of the chart."""

from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message

from arena.foreign_text import printable
from arena.runs.results import output_of
from arena.runs.run_state import RunState
from sandbox.protocol.events import Failure
from screens import figures
from screens.widgets.foreign import PlainStatic

_TEXT_SHOWN = 12_000


def failure_content(failure: Failure) -> Content:
    """Returns message, expected and actual value, and advice. The headline shows the place."""
    rows: list[Content] = [Content.styled(printable(failure.message), "bold")]
    if failure.index is not None or failure.expected is not None:
        rows.append(Content(""))
        rows.append(_pair("first wrong", figures.index_words(failure.index)))
        rows.append(_pair("expected", printable(failure.expected or "–"), "$success"))
        rows.append(_pair("got", printable(failure.got or "–"), "$error"))
    if failure.advice:
        rows += [Content(""), Content.assemble(("→ ", "$accent"), printable(failure.advice))]
    jump = f"enter jumps to line {failure.line}, " if failure.line is not None else ""
    rows.append(Content.assemble(("→ ", "$accent"), f"here: {jump}y copies"))
    return Content("\n").join(rows)


def _pair(name: str, value: str, colour: str = "$foreground") -> Content:
    return Content.assemble((f"{name:<12}", "$muted"), (value, colour))


class FailureView(VerticalScroll):
    """Shows a failure, and scrolls. Long tracebacks are cut; the log pane and the journal have the whole text."""

    DEFAULT_CSS = """
    FailureView #failure-output { color: $muted; margin-top: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    """
    BINDING_GROUP_TITLE = "What is wrong"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "jump_to_line", "to the line"),
        Binding("y", "copy", "copy the error"),
    ]

    @dataclass
    class Jump(Message):
        """The user asked to go to the line of the failure (1-based)."""

        line: int

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: Failure | None = None

    def compose(self) -> ComposeResult:
        yield PlainStatic("", id="failure-text")
        yield PlainStatic("", id="failure-output")  # not wrapped, so that carets stay below what they mark

    def show(self, state: RunState) -> None:
        """Draws again only when the failure changed."""
        failure = state.failure
        if failure is not None and state.verdict is not None and failure != self._shown:
            self._shown = failure
            self.query_one("#failure-text", PlainStatic).update(failure_content(failure))
            output = self.query_one("#failure-output", PlainStatic)
            text = output_of(failure)[:_TEXT_SHOWN]
            output.update(text)
            output.display = bool(text)
            self.scroll_home(animate=False)

    def action_copy(self) -> None:
        if self._shown is not None:
            failure = self._shown
            parts = [failure.message, failure.advice, output_of(failure)]
            self.app.copy_to_clipboard(printable("\n".join(filter(None, parts))))
            self.app.notify("Copied the error.", markup=False, timeout=3)

    def action_jump_to_line(self) -> None:
        if self._shown is not None and self._shown.line is not None:
            self.post_message(self.Jump(self._shown.line))
        else:
            self.app.notify("This error names no line of the kernel.", markup=False, timeout=3)
