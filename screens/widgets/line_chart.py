"""Lines of speedups on a logarithmic scale, in braille dots; 1.0 is always visible.

No library fits. textual-plot (0.10) has only linear scales and loads NumPy (0.1 s) into the app. plotext returns text
in its own colours, without themes and without a band behind a line.

To use it: put one on a screen. Call `plot` after every change: it draws only if its arguments differ. Example, two players:

    lines = (ChartLine("$accent bold", left_points, holds=True), ChartLine("$warning bold", right_points, holds=True))
    chart.plot(lines, until=600.0, axis=figures.clock, empty=NO_VERDICT)
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from textual.content import Content
from textual.widget import Widget

from arena.words.headline import TOO_NOISY, factor
from sandbox.protocol.events import Interval
from screens import figures

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
_AXIS, _FAILED = "$muted", "$error bold"
ACCENT = "$accent bold"
"""The style of a line that is alone."""
NO_VERDICT = ("The chart starts with the first speedup.", "No speedup yet.")
NO_SPEEDUP = ("No kernel has a speedup.", "No speedup.")
"""Texts for a chart without a speedup, during a duel and after it; a verdict that is too noisy has none."""


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


def verdict_point(at: float, passed: bool, speed: Interval | None, said: str) -> tuple[Point, ...]:
    """Returns the point of a kernel that was judged at second `at`; none if it is correct and has no speedup."""
    if not passed:
        return (Point(at, None),)
    return (Point(at, speed.median, speed.low, speed.high, "~" * (said == TOO_NOISY)),) if speed else ()


@dataclass(frozen=True)
class ChartLine:
    """One line."""

    style: str
    """A theme colour, such as "$accent bold"."""
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


class LineChart(Widget):
    """One or more lines, with their last values to the right."""

    DEFAULT_CSS = "LineChart { height: 1fr; text-wrap: nowrap; }"

    _lines: tuple[ChartLine, ...] = ()
    _until = 1.0
    _empty: tuple[str, ...] = ()
    _scale = (0.9, 1.1)
    _axis: Callable[[float], str] = str

    def plot(
        self,
        lines: Sequence[ChartLine],
        *,
        until: float,
        axis: Callable[[float], str],
        empty: tuple[str, ...] = (),
        scale: tuple[float, float] | None = None,
    ) -> None:
        """Draws lines, unless they are already shown.

        until: the right end of the x-axis; its left end is 0. axis: returns the label of a value there: "40 rounds", "2:30".
        empty: texts for a chart without points; the first that fits is shown. scale: as `scale_of` returns it, the rest
        is cut off; None: that of all points.
        """
        if scale is None:
            scale = scale_of(point.y for line in lines for point in line.points if point.y is not None)
        if (tuple(lines), until, scale, empty) != (self._lines, self._until, self._scale, self._empty):
            self._lines, self._until, self._scale, self._empty = tuple(lines), until, scale, empty
            self._axis = axis
            self.refresh()

    @property
    def end_words(self) -> str:
        """The label of the x-axis' right end, for the border of a chart without a row for the axis; else empty."""
        height = self.content_size.height
        known = any(line.points for line in self._lines)
        return self._axis(self._until) if known and 0 < height < _AXIS_FROM else ""

    # --- drawing ---------------------------------------------------------------------------------------------

    def render(self) -> Content:
        """The rows for the current size."""
        width, height = self.content_size
        columns = width - LEFT - RIGHT
        if not any(line.points for line in self._lines) or columns < 6 or height < 2:
            text = next((words for words in self._empty if len(words) <= width), "")
            return Content.styled("\n" * ((height - 1) // 2) + text.center(width), _AXIS)
        rows = height - 1 if height >= _AXIS_FROM else height
        grids = [self._grid(line, columns, rows) for line in self._lines]
        bands = self._bands(columns, rows)
        crosses = self._crosses(columns, rows)
        labels = {self._row_of(tick, rows): tick for tick in ticks_of(*self._scale, max(2, rows // 2))}
        one = self._row_of(1.0, rows)
        labels[one] = 1.0
        last = self._last_labels(rows)
        drawn = [
            Content.assemble(
                self._label(labels.get(y), one == y), *self._row(y, one == y, grids, bands, crosses), last.get(y, "")
            )
            for y in range(rows)
        ]
        return Content("\n").join(drawn if rows == height else [*drawn, self._x_axis(columns)])

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
    ) -> Iterator[tuple[str, str]]:
        """Yields the texts of a row, one for neighbouring cells of the same style. one: whether 1.0 is on it."""
        cells = [self._cell(x, y, one, grids, y in band, (x, y) in crosses) for x, band in enumerate(bands)]
        for style, group in groupby(cells, key=itemgetter(1)):
            yield "".join(text for text, _ in group), style

    def _cell(
        self, x: int, y: int, one: bool, grids: Sequence[BrailleGrid], inside: bool, cross: bool
    ) -> tuple[str, str]:
        """Returns a character and its style. inside: whether it lies in an interval."""
        if cross:
            return "✗", _FAILED
        band = " on $band" if inside else ""
        for line, grid in zip(self._lines, grids, strict=True):
            if (cell := grid.cell(x, y)) != " ":
                return cell, line.style + band
        return "┄" if one else " ", _AXIS + band

    def _label(self, value: float | None, one: bool) -> tuple[str, str]:
        if value is None:
            return "      │", _AXIS
        return f"{factor(value):>5} {'┼' if one else '┤'}", _AXIS

    def _last_labels(self, rows: int) -> dict[int, tuple[str, str]]:
        """Returns the last values of the lines by row, with the ends of their intervals above and below."""
        found: dict[int, tuple[str, str]] = {}
        lasts = ((line, next((p for p in reversed(line.points) if p.y is not None), None)) for line in self._lines)
        ends = [(last.y, last, line) for line, last in lasts if last is not None and last.y is not None]
        for value, last, line in sorted(ends, key=lambda end: -end[0]):
            for end in (last.low, last.high):
                if end is not None and end > 0.0 and math.isfinite(end):
                    found.setdefault(self._row_of(end, rows), (figures.end_factor(end), _AXIS))
            row = self._row_of(value, rows)
            while found.get(row, ("", _AXIS))[1] != _AXIS and row + 1 < rows:
                row += 1  # another line's value is on this row
            found[row] = (last.words or f"{factor(value)}×", line.style)
        return {row: (f" {words}", style) for row, (words, style) in found.items()}

    def _x_axis(self, columns: int) -> Content:
        left, right = self._axis(0.0), self._axis(self._until)
        if len(left) + len(right) + 1 > columns:
            left = ""
        return Content.styled(" " * LEFT + left + right.rjust(columns - len(left)), _AXIS)
