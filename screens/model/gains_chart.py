"""A chart of a model's kernels: speedup over the time of the verdict in seconds, a cross for a wrong one."""

from typing import ClassVar

from arena.players.writing_state import KernelState, WritingState
from arena.words.headline import by_clock
from sandbox.protocol.verdict import Verdict
from screens import figures
from screens.widgets.line_chart import ChartLine, LineChart, Point, scale_of


def point_of(kernel: KernelState) -> Point:
    """Returns the point of a judged kernel."""
    report = kernel.report
    speed = by_clock(report.speedup, report.clock) if report is not None else None
    if report is None or report.verdict is not Verdict.PASS or speed is None:
        return Point(kernel.judged_at, None)
    return Point(kernel.judged_at, speed.median, words=figures.end_words(report.outcome))


class GainsChart(LineChart):
    """Redraws when a verdict arrived."""

    EMPTY: ClassVar[tuple[str, ...]] = ("The chart starts with the first verdict.", "No verdict yet.")

    def show(self, state: WritingState) -> None:
        """Shows the kernels judged so far."""
        points = tuple(point_of(kernel) for kernel in state.kernels if kernel.report is not None)
        scale = scale_of(point.y for point in points if point.y is not None)
        until = max((point.x for point in points), default=1.0)
        self.plot([ChartLine("one", points, holds=True)], until=until, scale=scale, axis=figures.clock)
