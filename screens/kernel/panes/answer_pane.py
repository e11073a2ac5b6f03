"""The answer in detail: the speedup round by round, or what is wrong with the kernel."""

import math
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import ContentSwitcher

from arena.runs.run_state import RunState
from arena.words.untrusted_text import printable
from sandbox.protocol.events import Interval
from screens.kernel.headline import WAITING, reason
from screens.kernel.panes.failure_view import FailureView
from screens.kernel.panes.run_pane import RunPane
from screens.kernel.run_update import RunUpdate
from screens.widgets.key_line import entitle
from screens.widgets.line_chart import ACCENT, ChartLine, LineChart, Point, scale_of

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
