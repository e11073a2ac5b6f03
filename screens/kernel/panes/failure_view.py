"""The failure of a kernel, shown in place of the chart."""

import re
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content

from arena.records.report_text import output_of
from arena.words.untrusted_text import printable
from sandbox.protocol.events import Failure
from sandbox.protocol.kernel_files import MAIN
from screens import figures
from screens.kernel.run_update import LineJump
from screens.widgets.text_lines import PlainStatic

_TEXT_SHOWN = 12_000
_MARKS = re.compile(r"[ |]*(?P<marks>[\^~][\^~ ]*)")
"""A line of carets, as Python and C compilers print it under the line that they complain of."""


def failure_content(failure: Failure, keys: str, place: tuple[str, int] | None) -> Content:
    """Returns message, expected and actual value, and advice. The headline shows the place.

    keys: focus the pane. place: the file and line that enter jumps to.
    """
    rows: list[Content] = [Content.styled(printable(failure.message), "bold")]
    if failure.index is not None or failure.expected is not None:
        rows.append(Content(""))
        rows.append(_pair("first wrong", figures.index_words(failure.index)))
        rows.append(_pair("expected", printable(failure.expected or "–"), "$success"))
        rows.append(_pair("got", printable(failure.got or "–"), "$error"))
    if failure.advice:
        rows += [Content(""), Content.assemble(("→ ", "$accent"), printable(failure.advice))]
    file = f" of {place[0]}" if place and place[0] != MAIN else ""
    jump = f"enter jumps to line {place[1]}{file}, " if place else ""
    rows.append(Content.assemble(("→ ", "$accent"), f"{keys} goes to this pane: {jump}y copies"))
    return Content("\n").join(rows)


def _pair(name: str, value: str, colour: str = "$foreground") -> Content:
    return Content.assemble((f"{name:<12}", "$muted"), (value, colour))


def with_marks_in_view(text: str, width: int) -> str:
    """The text without the beginnings of lines whose carets, in the line below, would be cut off after `width` columns."""
    lines = text.split("\n")
    for at in range(1, len(lines)):
        found = _MARKS.fullmatch(lines[at])
        if found is None or found.end("marks") < width:
            continue
        # One column is for the ellipsis in front, one for that behind.
        begin = min(found.start("marks"), found.end("marks") + 2 - width)
        lines[at - 1] = f"…{lines[at - 1][begin:]}"
        lines[at] = f" {lines[at][begin:]}"
    return "\n".join(lines)


class FailureOutput(PlainStatic):
    """A traceback or a compiler's output. It is not wrapped, so that carets stay below what they mark."""

    DEFAULT_CSS = """
    FailureOutput { color: $muted; margin-top: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def show(self, text: str) -> None:
        self.display = bool(text)
        self.update(text)

    def render(self) -> Content:
        return Content(with_marks_in_view(str(self.content), self.content_size.width))


class FailureView(VerticalScroll):
    """Shows a failure, and scrolls. Long tracebacks are cut; the log pane and the journal have the whole text."""

    BINDING_GROUP_TITLE = "What is wrong"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "jump_to_line", "to the line"),
        Binding("y", "copy", "copy the error"),
    ]

    _shown: Failure | None = None
    _of_other = False
    _place: tuple[str, int] | None = None

    def compose(self) -> ComposeResult:
        yield PlainStatic("", id="failure-text")
        yield FailureOutput()

    def show(self, failure: Failure | None, keys: str, place: tuple[str, int] | None, *, of_other: bool) -> None:
        """Draws again only when the failure changed.

        keys: focus this pane. place: as for `failure_content`. of_other: the failure is not of the kernel in the editor.
        """
        place = None if of_other else place
        if failure is not None and (failure, of_other, place) != (self._shown, self._of_other, self._place):
            self._shown, self._of_other, self._place = failure, of_other, place
            self.query_one("#failure-text", PlainStatic).update(failure_content(failure, keys, self._place))
            self.query_one(FailureOutput).show(output_of(failure)[:_TEXT_SHOWN])
            self.scroll_home(animate=False)

    def action_copy(self) -> None:
        if self._shown is not None:
            failure = self._shown
            parts = [failure.message, failure.advice, output_of(failure)]
            self.app.copy_to_clipboard(printable("\n".join(filter(None, parts))))
            self.app.notify("Copied the error.", markup=False, timeout=3)

    def action_jump_to_line(self) -> None:
        if self._of_other:
            self.app.notify("This error is of the other kernel.", markup=False, timeout=3)
        elif self._place is not None:
            self.post_message(LineJump(self._place[1], self._place[0]))
        else:
            self.app.notify("This error names no line of the kernel.", markup=False, timeout=3)
