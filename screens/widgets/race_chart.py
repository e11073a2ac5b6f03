"""The race: each side's speedup over the baseline by time, a cross where a kernel failed, the baseline at 1."""

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from arena.duel.events import SIDES, SideName
from arena.duel.state import DuelState
from screens import figures
from screens.widgets.braille import BrailleGrid
from screens.widgets.drawn_rows import DrawnRows

_AXIS = 7
_EMPTY = ("The race starts with the first verdict.", "No verdict yet.")
_LEAST_SECONDS = 30.0
Points = list[tuple[float, float | None]]


def points_of(state: DuelState, name: SideName) -> Points:
    """(seconds, speedup) of every kernel by verdict, None where it failed; while one is timed, its speedup so far."""
    found: Points = []
    for attempt in state.side(name).attempts:
        if attempt.judged is not None:
            speed = attempt.judged.speedup
            found.append((attempt.judged.at, speed.median if attempt.passed and speed is not None else None))
        elif attempt.samples:
            found.append((attempt.samples[-1].at, attempt.samples[-1].speedup.median))
    return found


class RaceChart(DrawnRows):
    """Redraws when a verdict or a round arrived, and as the clock moves on."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "race--left",
        "race--right",
        "race--failed",
        "race--axis",
        "race--empty",
    }

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._points: dict[SideName, Points] = {name: [] for name in SIDES}
        self._until = _LEAST_SECONDS

    def show(self, state: DuelState, now: float) -> None:
        """The duel so far; now: seconds since it began."""
        points = {name: points_of(state, name) for name in SIDES}
        minutes = state.header.minutes
        length = minutes * 60 if minutes is not None else _LEAST_SECONDS
        until = max(length if minutes is not None else 0.0, _LEAST_SECONDS, float(int(now)))
        if (points, until) != (self._points, self._until):
            self._points, self._until = points, until
            self.stale()

    def draw(self) -> list[Strip]:
        width, height = self.content_size
        speeds = [speed for line in self._points.values() for _, speed in line if speed is not None]
        if not any(self._points.values()) or width < _AXIS + 6 or height < 3:
            return self._draw_empty(width, height)
        top = max([1.5, *speeds]) * 1.1
        columns = width - _AXIS
        grids = {name: self._grid(self._points[name], columns, height, top) for name in SIDES}
        crosses: dict[tuple[int, int], str] = {}
        for name, row in zip(SIDES, (height - 2, height - 1), strict=True):
            for at, speed in self._points[name]:
                if speed is None:
                    crosses[self._column(at, columns) // 2, row] = name
        return [self._row(y, grids, crosses, top, height) for y in range(height)]

    def _column(self, at: float, columns: int) -> int:
        return min(round(at / self._until * (columns * 2 - 1)), columns * 2 - 1)

    def _grid(self, points: Points, columns: int, height: int, top: float) -> BrailleGrid:
        grid = BrailleGrid(columns, height)
        last: tuple[int, int] | None = None
        for at, speed in points:
            if speed is None:
                continue
            here = (self._column(at, columns), round((1 - min(speed, top) / top) * (height * 4 - 1)))
            if last is not None:
                grid.line(*last, here[0], last[1])
                grid.line(here[0], last[1], *here)
            grid.set(*here)
            grid.set(here[0] + 1, here[1])
            last = here
        if last is not None:
            grid.line(*last, columns * 2 - 1, last[1])
        return grid

    def _row(
        self,
        y: int,
        grids: dict[SideName, BrailleGrid],
        crosses: dict[tuple[int, int], str],
        top: float,
        height: int,
    ) -> Strip:
        axis = self.get_component_rich_style("race--axis")
        step = top / height
        value = top - y * step
        holds_one = value - step <= 1.0 < value
        label = f"{figures.factor(1.0 if holds_one else value - step / 2):>5} {'┼' if holds_one else '┤'}"
        segments = [Segment(label if holds_one or y in {0, height - 1} else "      │", axis)]
        segments += [self._cell(x, y, grids, crosses, holds_one, axis) for x in range(grids["left"].width)]
        return Strip(segments).simplify()

    def _cell(
        self,
        x: int,
        y: int,
        grids: dict[SideName, BrailleGrid],
        crosses: dict[tuple[int, int], str],
        holds_one: bool,
        axis: Style,
    ) -> Segment:
        if (x, y) in crosses:
            return Segment("✗", self.get_component_rich_style("race--failed"))
        for name in SIDES:
            cell = grids[name].cell(x, y)
            if cell != " ":
                return Segment(cell, self.get_component_rich_style(f"race--{name}"))
        return Segment("┄" if holds_one else " ", axis)

    def _draw_empty(self, width: int, height: int) -> list[Strip]:
        style = self.get_component_rich_style("race--empty")
        text = next((words for words in _EMPTY if len(words) <= width), "")
        rows = [Strip.blank(width, self.rich_style)] * height
        if height:
            left = (width - len(text)) // 2
            words = Strip([Segment(" " * left, self.rich_style), Segment(text, style)])
            rows[(height - 1) // 2] = words.adjust_cell_length(width, self.rich_style)
        return rows
