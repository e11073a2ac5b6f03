"""The answer in detail: the speedup round by round, or what is wrong with the kernel."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import ContentSwitcher

from arena.words.untrusted_text import printable
from screens.kernel.panes.failure_view import FailureView
from screens.kernel.panes.run_pane import RunPane
from screens.kernel.panes.speedup_chart import SpeedupChart
from screens.kernel.run_update import RunUpdate
from screens.widgets.key_line import entitle


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
        yield SpeedupChart(id="chart")
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
        running, held = update.state.running, update.state.waiting
        waiting = printable(held.words) if held is not None and running else ""
        final = headline.speedup if headline is not None and update.state.result is not None else None
        self.query_one(SpeedupChart).show(update.state.samples, clock, final, running=running, waiting=waiting)
        self.query_one(FailureView).show(update.failure, f"{update.jump_key} {self.LETTER}", of_other=other)
        self.on_resize()

    def on_resize(self) -> None:
        """Shows the end of the x-axis on the border if the chart has no row for its axis."""
        shown = self.current == "chart"
        entitle(self, None, self.query_one(SpeedupChart).end_words if shown else "")
