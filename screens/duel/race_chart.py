"""The race: each player's speedup over the baseline by time, a cross for each failed kernel, the baseline at 1."""

from typing import ClassVar

from arena.duel.events import SIDES, SideName
from arena.duel.state import DuelState
from screens import figures
from screens.widgets.line_chart import ChartLine, LineChart, Point, scale_of

_LEAST_SECONDS = 30.0
_STYLES: dict[SideName, str] = {"left": "one", "right": "two"}


def points_of(state: DuelState, name: SideName) -> tuple[Point, ...]:
    """Returns a player's kernels by the second of their verdicts; for one that is being timed, its speedup so far."""
    found: list[Point] = []
    for attempt in state.side(name).attempts:
        if attempt.judged is not None:
            speed = attempt.judged.speedup
            value = speed.median if attempt.passed and speed is not None else None
            found.append(Point(attempt.judged.at, value, words=figures.end_words(attempt.judged.outcome)))
        elif attempt.samples:
            found.append(Point(attempt.samples[-1].at, attempt.samples[-1].speedup.median))
    return tuple(found)


class RaceChart(LineChart):
    """Redraws when a verdict or a round arrived, and as the clock moves on."""

    EMPTY: ClassVar[tuple[str, ...]] = ("The chart starts with the first verdict.", "No verdict yet.")

    def show(self, state: DuelState, now: float) -> None:
        """Draws the duel so far. now: seconds since it began."""
        lines = [ChartLine(_STYLES[name], points_of(state, name), holds=True) for name in SIDES]
        # The axis ends at the current time; the clock shows how much time is left.
        until = max(_LEAST_SECONDS, float(int(now)))
        scale = scale_of(point.y for line in lines for point in line.points if point.y is not None)
        self.plot(lines, until=until, scale=scale, axis=figures.clock)
