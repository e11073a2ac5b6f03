"""The answer in detail: the speedup round by round, or what is wrong with the kernel."""

import math
import re
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import ContentSwitcher

from arena.records.report_text import output_of
from arena.runs.run_state import RunState
from arena.words.untrusted_text import printable
from sandbox.protocol.events import Failure, Interval
from sandbox.protocol.kernel_files import MAIN
from screens import figures
from screens.kernel.headline import WAITING, reason
from screens.kernel.panes.run_pane import RunPane
from screens.kernel.run_update import LineJump, RunUpdate
from screens.widgets.key_line import entitle
from screens.widgets.line_chart import ACCENT, ChartLine, LineChart, Point, scale_of
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


NO_SPEEDUP = ("The speedup appears here when the kernel is correct and timed.", "No speedup yet.")
SPREAD = 1.5
"""Half-widths of the last interval by which the scale may exceed it on either side, to show earlier rounds."""


def bounds_of(intervals: Sequence[Interval]) -> tuple[float, float]:
    """Lowest and highest speedup of the chart: the last interval, and the later medians, limited to near it.

    The wide intervals of the first rounds exceed the chart, so that the end is readable.
    """
    last = intervals[-1]
    if not (last.low > 0.0 and math.isfinite(last.high)):
        return scale_of(interval.median for interval in intervals)
    wide = (last.high / last.low) ** (SPREAD / 2)
    near = [min(max(each.median, last.low / wide), last.high * wide) for each in intervals[len(intervals) // 2 :]]
    return scale_of([last.low, last.high, *near])


def rounds_words(rounds: float) -> str:
    """The words of the x-axis."""
    return f"{rounds:.0f} round{'s' * (round(rounds) != 1)}" if rounds else "0"


class AnswerPane(ContentSwitcher, RunPane, can_focus=True):
    """Shows the chart, or the failure once there is a verdict other than PASS."""

    DEFAULT_CSS = """
    AnswerPane {
        height: 1fr;
        min-height: 5;
        padding: 0 1;
    }
    """
    NAME: ClassVar[str] = "answer"
    TITLE: ClassVar[str] = "Speedup"
    LETTER: ClassVar[str] = "s"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, initial="chart")

    def compose(self) -> ComposeResult:
        yield LineChart(id="chart")
        yield FailureView(id="failure")

    @property
    def front(self) -> Widget:
        return self if self.can_focus else self.query_one(FailureView)

    def _bring_up(self, failed: bool) -> None:
        """Shows the failure or the chart. Only the failure scrolls by keys; with the chart the pane has the focus."""
        name = "failure" if failed else "chart"
        if self.current != name:
            focused = self.has_pseudo_class("focus-within") or self.has_focus
            self.current = name
            self.can_focus = not failed
            if focused:
                self.front.focus()

    def show(self, update: RunUpdate) -> None:
        other = not update.failed and update.failure is not None
        failed = update.failed or other
        self._bring_up(failed)
        headline = update.state.headline
        clock = headline.clock if headline is not None else ""
        title = f"{self.TITLE}, {headline.where}, 99 % interval" if headline and clock else self.TITLE
        wrong = f"What is wrong with {update.versus or 'the other kernel'}" if other else "What is wrong"
        entitle(self, wrong if failed else title)
        self._draw_chart(update.state, clock)
        keys = f"{update.jump_key} {self.LETTER}"
        self.query_one(FailureView).show(update.failure, keys, update.place, of_other=other)
        self.on_resize()

    def _draw_chart(self, state: RunState, clock: str) -> None:
        """Draws the rounds so far by the headline's clock: the median as a line, its 99 % interval as a band.

        An ended run fills the width. Its line ends with the speedup of the result, which all rounds give.
        """
        samples, headline, held = state.samples, state.headline, state.waiting if state.running else None
        by_round = enumerate((sample.device if clock == "device" else sample.call for sample in samples), 1)
        # the device time is not known in the first rounds
        known = [(number, speed) for number, speed in by_round if headline and speed and speed.median > 0.0]
        if known and headline is not None and state.result is not None:
            known[-1] = known[-1][0], headline.speedup
        points = tuple(Point(number, each.median, each.low, each.high) for number, each in known)
        until = max(len(samples), samples[-1].rounds if state.running else 0) if samples else 1
        scale = bounds_of([interval for _, interval in known]) if known else None
        empty: tuple[str, ...] = NO_SPEEDUP
        if held is not None:
            empty = (f"{WAITING} ({printable(held.words)})", WAITING, "Waiting")
        elif (told := state.told) is not None and told.outcome:
            empty = (printable(told.told), reason(told.told), told.outcome)
        chart = self.query_one(LineChart)
        chart.plot([ChartLine(ACCENT, points)], until=until, scale=scale, axis=rounds_words, empty=empty)

    def on_resize(self) -> None:
        """Shows the end of the x-axis on the border if the chart has no row for its axis."""
        shown = self.current == "chart"
        entitle(self, None, self.query_one(LineChart).end_words if shown else "")
