"""Lines of speedups on a logarithmic scale, in braille dots; 1.0 is always visible.

No library fits. textual-plot (0.10) has only linear scales and loads NumPy (0.1 s) into the app. plotext returns text
in its own colours, without themes and without a band behind a line.

To use it: derive from `LineChart` (the stylesheet or DEFAULT_CSS gives the colours of `chart--NAME`), or put one on a
screen. Call `plot` after every change: it draws only if its arguments differ. Example, two players of a race:

    chart.plot(
        (ChartLine("one", left_points, holds=True), ChartLine("two", right_points, holds=True)),
        until=600.0, scale=scale_of(every_speedup), axis=figures.clock,
    )
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from arena.players.writing_state import KernelState, WritingState
from arena.words.headline import by_clock
from sandbox.protocol.verdict import Verdict
from screens import figures
from screens.widgets.drawn_rows import DrawnRows

_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


class BrailleGrid:
    """`width` x `height` cells, addressed in dots from the top left."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._cells = [[0] * width for _ in range(height)]

    def set(self, x: int, y: int) -> None:
        """Sets one dot; does nothing outside the grid."""
        if 0 <= x < self.width * 2 and 0 <= y < self.height * 4:
            self._cells[y // 4][x // 2] |= _BITS[y % 4][x % 2]

    def line(self, x0: int, y0: int, x1: int, y1: int) -> None:
        """Sets the dots between two points."""
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in range(steps + 1):
            self.set(x0 + round((x1 - x0) * step / steps), y0 + round((y1 - y0) * step / steps))

    def cell(self, x: int, y: int) -> str:
        """The character of one cell; a space where no dot is set."""
        bits = self._cells[y][x]
        return chr(0x2800 + bits) if bits else " "


LEFT = 7
"""Width of the scale, in cells."""
RIGHT = 8
"""Width of the column for the last values, to the right of the lines, in cells."""
LEAST_SPAN = 1.08
"""Minimum ratio of a scale's highest to its lowest value, so that a flat line looks flat."""
AIR = 0.07
"""Share of the scale that stays free above and below."""
_AXIS_FROM = 5
"""Minimum rows of a chart that uses one of them for the x-axis."""
_STEPS = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0)


class Point(NamedTuple):
    """One point of a line."""

    x: float
    y: float | None
    """A speedup above 0; None if there is none, drawn as a cross at the bottom."""
    low: float | None = None
    high: float | None = None
    """The upper end of the interval of `y`, if it has one. The interval is drawn as the band behind the line."""
    words: str = ""
    """The label of a line that ends here; if empty, the label is the value."""


@dataclass(frozen=True)
class ChartLine:
    """One line."""

    style: str
    """ "one" or "two": the component class chart--one or chart--two."""
    points: tuple[Point, ...]
    holds: bool = False
    """Whether each value holds until the next one, and the last to the end: steps instead of slopes."""


def scale_of(values: Iterable[float]) -> tuple[float, float]:
    """Returns the lowest and highest value of a scale that shows all of `values` and 1.0, with some space."""
    known = [math.log(value) for value in values if value > 0.0 and math.isfinite(value)]
    low, high = min([0.0, *known]), max([0.0, *known])
    if high - low < math.log(LEAST_SPAN):
        middle = (low + high) / 2
        low, high = middle - math.log(LEAST_SPAN) / 2, middle + math.log(LEAST_SPAN) / 2
    air = (high - low) * AIR
    return math.exp(low - air), math.exp(high + air)


def ticks_of(low: float, high: float, most: int) -> list[float]:
    """Returns at most `most` round numbers between the ends of a scale, 1.0 among them."""
    if high / low > 3.0:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        for steps in (_STEPS, (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
            found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
            found = [value for value in found if low <= value <= high]
            if len(found) <= most:
                return found
        return [1.0]
    step = 10.0 ** math.floor(math.log10(high - low))
    for part in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0):
        size = step * part
        numbers = range(math.ceil((low - 1.0) / size), math.floor((high - 1.0) / size) + 1)
        if len(numbers) <= most:
            return [1.0 + number * size for number in numbers]
    return [1.0]


class LineChart(DrawnRows):
    """One or more lines, with their last values to the right."""

    DEFAULT_CSS = """
    LineChart {
        height: 1fr;
        & .chart--one { color: $accent; text-style: bold; }
        & .chart--two { color: $warning; text-style: bold; }
        & .chart--band { background: $band; }
        & .chart--axis { color: $muted; }
        & .chart--failed { color: $error; text-style: bold; }
        & .chart--empty { color: $muted; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"chart--{name}" for name in ("one", "two", "band", "axis", "failed", "empty")
    }
    EMPTY: ClassVar[tuple[str, ...]] = ("Nothing to draw yet.",)
    """Texts for an empty chart; the first that fits is shown. `plot` can replace them."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: tuple[ChartLine, ...] = ()
        self._until = 1.0
        self._empty: tuple[str, ...] = ()
        self._scale = (0.9, 1.1)
        self._axis: Callable[[float], str] = str

    def plot(
        self,
        lines: Sequence[ChartLine],
        *,
        until: float,
        scale: tuple[float, float],
        axis: Callable[[float], str],
        empty: tuple[str, ...] = (),
    ) -> None:
        """Draws lines, unless they are already shown.

        until: the right end of the x-axis; its left end is 0. scale: as `scale_of` returns it; the rest is cut off.
        axis: returns the label of a value on the x-axis: "40 rounds", "2:30".
        """
        if (tuple(lines), until, scale, empty) != (self._lines, self._until, self._scale, self._empty):
            self._empty = empty
            self._lines, self._until, self._scale, self._axis = tuple(lines), until, scale, axis
            self.stale()

    @property
    def end_words(self) -> str:
        """The label of the x-axis' right end, for the border of a chart without a row for the axis; else empty."""
        height = self.content_size.height
        known = any(line.points for line in self._lines)
        return self._axis(self._until) if known and 0 < height < _AXIS_FROM else ""

    # --- drawing ---------------------------------------------------------------------------------------------

    def draw(self) -> list[Strip]:
        width, height = self.content_size
        columns = width - LEFT - RIGHT
        if not any(line.points for line in self._lines) or columns < 6 or height < 2:
            return self._draw_empty(width, height)
        rows = height - 1 if height >= _AXIS_FROM else height
        grids = [self._grid(line, columns, rows) for line in self._lines]
        bands = self._bands(columns, rows)
        crosses = self._crosses(columns, rows)
        labels = {self._row_of(tick, rows): tick for tick in ticks_of(*self._scale, max(2, rows // 2))}
        one = self._row_of(1.0, rows)
        labels[one] = 1.0
        last = self._last_labels(rows)
        drawn = [
            Strip(
                [
                    self._label(labels.get(y), one == y),
                    *self._row(y, one == y, grids, bands, crosses),
                    *last.get(y, [Segment(" " * RIGHT, self.rich_style)]),
                ]
            )
            for y in range(rows)
        ]
        return drawn if rows == height else [*drawn, self._x_axis(columns)]

    def _dot(self, value: float, rows: int) -> int:
        """Returns the dot row of a value, from the top. Values outside the scale are clamped to a row beyond it."""
        low, high = (math.log(end) for end in self._scale)
        share = (high - math.log(value)) / (high - low) if value > 0.0 else math.inf
        return round(max(-4.0, min(share * (rows * 4 - 1), rows * 4 + 3.0)))

    def _row_of(self, value: float, rows: int) -> int:
        return max(0, min(rows - 1, self._dot(value, rows) // 4))

    def _column(self, x: float, columns: int) -> int:
        """Returns the dot column of `x`; a cell has two."""
        return max(0, min(round(x / max(self._until, 1e-9) * (columns * 2 - 1)), columns * 2 - 1))

    def _grid(self, line: ChartLine, columns: int, rows: int) -> BrailleGrid:
        grid = BrailleGrid(columns, rows)
        last: tuple[int, int] | None = None
        for point in line.points:
            if point.y is None:
                continue
            here = (self._column(point.x, columns), self._dot(point.y, rows))
            if line.holds and last is not None:
                grid.line(*last, here[0], last[1])
                last = (here[0], last[1])
            grid.line(*(last or here), *here)
            last = here
        if line.holds and last is not None:
            grid.set(*last)
            grid.line(*last, columns * 2 - 1, last[1])
        return grid

    def _bands(self, columns: int, rows: int) -> list[range]:
        """Returns the rows of the interval behind every column; empty to the left of a line's first interval."""
        bands = [range(0)] * columns
        for line in self._lines:
            places, heights = [], []
            for point in line.points:
                if point.low is not None and point.high is not None:
                    places.append(self._column(point.x, columns) // 2)
                    heights.append(range(self._dot(point.high, rows) // 4, self._dot(point.low, rows) // 4 + 1))
            for column in range(places[0] if places else columns, columns):
                number = bisect_left(places, column)
                if number < len(heights):
                    bands[column] = heights[number]
        return bands

    def _crosses(self, columns: int, rows: int) -> set[tuple[int, int]]:
        """Returns the cells (column, row) with a cross. Each line has its own row at the bottom."""
        return {
            (self._column(point.x, columns) // 2, rows - len(self._lines) + number)
            for number, line in enumerate(self._lines)
            for point in line.points
            if point.y is None
        }

    def _row(
        self, y: int, one: bool, grids: Sequence[BrailleGrid], bands: Sequence[range], crosses: set[tuple[int, int]]
    ) -> Iterator[Segment]:
        """Yields the segments of a row, one for neighbouring cells of the same style. one: whether 1.0 is on it."""
        cells = [self._cell(x, y, one, grids, y in band, (x, y) in crosses) for x, band in enumerate(bands)]
        for (name, inside), group in groupby(cells, key=itemgetter(1)):
            style = self._style(name) + self._style("band") if inside else self._style(name)
            yield Segment("".join(text for text, _ in group), style)

    def _cell(
        self, x: int, y: int, one: bool, grids: Sequence[BrailleGrid], inside: bool, cross: bool
    ) -> tuple[str, tuple[str, bool]]:
        """Returns a character, the name of its style, and whether an interval lies behind it."""
        if cross:
            return "✗", ("failed", False)
        for line, grid in zip(self._lines, grids, strict=True):
            if (cell := grid.cell(x, y)) != " ":
                return cell, (line.style, inside)
        return "┄" if one else " ", ("axis", inside)

    def _label(self, value: float | None, one: bool) -> Segment:
        if value is None:
            return Segment("      │", self._style("axis"))
        return Segment(f"{figures.factor(value):>5} {'┼' if one else '┤'}", self._style("axis"))

    def _last_labels(self, rows: int) -> dict[int, list[Segment]]:
        """Returns the last values of the lines by row, with the ends of their intervals above and below."""
        found: dict[int, tuple[str, str]] = {}
        for line in reversed(self._lines):
            last = next((point for point in reversed(line.points) if point.y is not None), None)
            if last is None or last.y is None:
                continue
            for end in (last.low, last.high):
                if end is not None and end > 0.0 and math.isfinite(end):
                    found.setdefault(self._row_of(end, rows), (figures.end_factor(end), "axis"))
            row = self._row_of(last.y, rows)
            while found.get(row, ("", "axis"))[1] != "axis" and row + 1 < rows:
                row += 1  # another line's value is on this row
            found[row] = (last.words or f"{figures.factor(last.y)}×", line.style)
        return {row: [Segment(f" {words}".ljust(RIGHT), self._style(style))] for row, (words, style) in found.items()}

    def _x_axis(self, columns: int) -> Strip:
        left, right = self._axis(0.0), self._axis(self._until)
        if len(left) + len(right) + 1 > columns:
            left = ""
        words = left + right.rjust(columns - len(left))
        return Strip([Segment(" " * LEFT + words + " " * RIGHT, self._style("axis"))])

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"chart--{name}", partial=name == "band")

    def _draw_empty(self, width: int, height: int) -> list[Strip]:
        text = next((words for words in self._empty or self.EMPTY if len(words) <= width), "")
        rows = [Strip.blank(width, self.rich_style)] * height
        if height:
            left = (width - len(text)) // 2
            words = Strip([Segment(" " * left, self.rich_style), Segment(text, self._style("empty"))])
            rows[(height - 1) // 2] = words.adjust_cell_length(width, self.rich_style)
        return rows


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
