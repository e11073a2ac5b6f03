"""The result column of the kernel screen: one pane for each part of the referee's result."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from screens.kernel.panes.answer_pane import AnswerPane
from screens.kernel.panes.correctness import Correctness
from screens.kernel.panes.log_pane import LogPane
from screens.kernel.panes.other_sizes_pane import OtherSizesPane
from screens.kernel.panes.run_pane import RunPane
from screens.kernel.panes.timing_table import TimingTable
from screens.kernel.run_update import RunUpdate
from screens.widgets.key_line import entitle

PANES: tuple[type[RunPane], ...] = (AnswerPane, Correctness, TimingTable, OtherSizesPane, LogPane)
"""From top to bottom. To add a pane: write its module in this folder, and list its class here."""
FRAME = 2
"""Rows of a border."""
LEAST_LOG, LOG_SHARE = 3, 0.18
LEAST_ANSWER = 5
TIMES = 8
"""Rows of the timing pane when its content is complete: two sentences, the header and two rows."""
LEAST_TIMES = 5
"""Its rows without the sentences, if other sizes need the room."""
LEGEND_FROM = 54
"""Columns from which a legend is shown below the rows of the ranks."""
FAILURE = 14
"""Rows that the failure should have. With fewer, it also gets those of the timing pane, which is then hidden."""


class ResultPane(Vertical):
    """Has the class `failed` while a verdict other than PASS is shown."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.panes = [make(id=make.NAME) for make in PANES]
        self._ranks = 2
        self._arranged: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        for pane in self.panes:
            pane.add_class("pane")
            pane.set_class(not pane.SHOWN_AFTER_FAILURE, "if-right")
            entitle(pane, pane.TITLE)
            yield pane

    @property
    def in_use(self) -> list[RunPane]:
        """The panes that can take the focus now."""
        right = not self.has_class("failed")
        return [pane for pane in self.panes if (right or pane.SHOWN_AFTER_FAILURE) and not pane.empty]

    def pane(self, name: str) -> RunPane:
        return next(pane for pane in self.panes if name == pane.NAME)

    def pane_of(self, widget: Widget | None) -> RunPane | None:
        """Returns the pane that is this widget, or contains it."""
        ancestors = widget.ancestors_with_self if widget is not None else []
        return next((node for node in ancestors if isinstance(node, RunPane)), None)

    def set_heights(self, ranks: int | None = None) -> None:
        """Sets heights that do not change while a run goes on or when it ends; with enough room, nor when it fails.

        The log takes what is left. While one pane fills the screen, heights come from the stylesheet.
        """
        self._ranks = ranks = ranks or self._ranks
        screen = self.screen
        alone = screen.has_class("zoom-right")
        log = 0 if screen.has_class("view-result") else max(LEAST_LOG, round(LOG_SHARE * self.size.height))
        times = 0 if log == 0 and self.has_class("failed") else TIMES
        failed = self.has_class("failed")
        others = 0 if failed else sum(pane.rows for pane in self.panes)
        key = (ranks, self.size, alone, log, times, failed, others)
        if key == self._arranged or not self.size.area:
            return
        self._arranged = key
        legend = 1 if self.size.width >= LEGEND_FROM else 0
        rows = min(ranks + legend + FRAME, 12)
        if times and not legend:
            times += 1 if log else 2  # the sentences take up to two rows each
        if times and log and others:
            missing = rows + times + log + others + LEAST_ANSWER - self.size.height
            times = max(LEAST_TIMES, min(times, times - missing))
        self.pane("correctness").styles.height = None if alone else rows
        answer = max(LEAST_ANSWER if log else LEAST_ANSWER + 1, self.size.height - rows - times - log - others)
        if failed and log and answer < FAILURE:
            answer = min(FAILURE, answer + times)
        self.pane("answer").styles.height = None if alone else answer
        # The timing sentences have a fixed number of rows from the start: else the log would move when they appear.
        timing = self.pane("timing")
        assert isinstance(timing, TimingTable)
        held = log > 0 and not alone
        timing.styles.min_height = times if held else None
        timing.most_rows = times - FRAME if held else None

    def on_resize(self) -> None:
        self.set_heights()

    def show(self, update: RunUpdate) -> None:
        """Updates every pane."""
        self.set_class(update.failed, "failed")
        self.set_heights()
        for pane in self.panes:
            pane.take(update)
        self.set_heights()  # a pane may have more rows now
