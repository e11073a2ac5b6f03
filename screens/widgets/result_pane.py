"""The judgement of a kernel: its speedup or what is wrong, correctness, times, and what was printed."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import ContentSwitcher

from arena.run_state import RunState
from sandbox.verdict import Verdict
from screens.log_lines import LogLine
from screens.widgets.correctness import Correctness
from screens.widgets.failure_view import FailureView
from screens.widgets.log_pane import LogPane
from screens.widgets.pane_title import entitle
from screens.widgets.speedup_chart import SpeedupChart
from screens.widgets.timing_table import TimingTable


class ResultPane(Vertical):
    """Has the class `failed` while a verdict other than PASS is shown."""

    def compose(self) -> ComposeResult:
        with ContentSwitcher(initial="chart", id="answer"):
            yield SpeedupChart(id="chart")
            yield FailureView(id="failure")
        yield Correctness(id="correctness")
        yield TimingTable(id="timing")
        yield LogPane(id="log")

    def on_mount(self) -> None:
        for name, title in (
            ("answer", "Speedup"),
            ("correctness", "Correctness"),
            ("timing", "Time"),
            ("log", "Log"),
        ):
            entitle(self.query_one(f"#{name}"), title)

    def show(self, state: RunState, lines: list[LogLine], new_run: bool) -> None:
        """Brings every widget up to what is known. lines: those since the last call; new_run: they begin a log of their own."""
        log = self.query_one(LogPane)
        if new_run:
            log.clear_log()
        if lines:
            log.write(lines)
        failed = state.verdict not in (None, Verdict.PASS)
        self.set_class(failed, "failed")
        answer = self.query_one("#answer", ContentSwitcher)
        answer.current = "failure" if failed else "chart"
        entitle(answer, "What is wrong" if failed else "Speedup")
        self.query_one(SpeedupChart).show(state.samples)
        self.query_one(FailureView).show(state)
        self.query_one(Correctness).show(state)
        self.query_one(TimingTable).show(state)
