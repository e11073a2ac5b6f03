"""The speedup round by round: the median as a line, its 95 % interval as a band, the baseline at 1."""

import math
from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.strip import Strip

from sandbox.events import Timed
from screens import figures
from screens.widgets.braille import BrailleGrid
from screens.widgets.drawn_rows import DrawnRows

_AXIS = 7
"""Cells of the scale on the left."""

_EMPTY = ("The speedup appears here once the kernel is correct.", "No speedup yet.")


def bounds_of(samples: Sequence[Timed]) -> tuple[float, float]:
    """Lowest and highest speedup of the chart: the settled part of the band and 1.0, with a little air.

    The first rounds have wide intervals; they may leave the chart so that the end is readable.
    """
    settled = samples[len(samples) // 3 :] or samples
    low = min([1.0, *(s.call.low for s in settled if math.isfinite(s.call.low))])
    high = max([1.0, *(s.call.high for s in settled if math.isfinite(s.call.high))])
    air = max(0.04, (high - low) * 0.12)
    return max(0.0, low - air), high + air


class SpeedupChart(DrawnRows):
    """Redraws only when a round arrived."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "chart--line",
        "chart--band",
        "chart--axis",
        "chart--one",
        "chart--empty",
    }

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._samples: list[Timed] = []
        self._seen: tuple[int, float] = (0, 0.0)

    def show(self, samples: list[Timed]) -> None:
        """The rounds so far."""
        seen = (len(samples), samples[-1].call.median if samples else 0.0)
        if seen != self._seen:
            self._samples, self._seen = samples, seen
            self.stale()

    def draw(self) -> list[Strip]:
        width, height = self.content_size
        if not self._samples or width < _AXIS + 8 or height < 2:
            return self._draw_empty(width, height)
        low, high = bounds_of(self._samples)
        columns = width - _AXIS

        def dot(value: float) -> int:
            return round((high - value) / (high - low) * (height * 4 - 1))

        grid = BrailleGrid(columns, height)
        rounds = max(len(self._samples), self._samples[-1].rounds, 2)
        bands: dict[int, tuple[float, float]] = {}
        last: tuple[int, int] | None = None
        previous_column = 0
        for number, sample in enumerate(self._samples):
            x = round(number / (rounds - 1) * (columns * 2 - 1))
            here = (x, max(-1, min(height * 4, dot(sample.call.median))))
            grid.line(*(last or here), *here)
            last = here
            for column in range(previous_column, x // 2 + 1):
                bands[column] = (sample.call.low, sample.call.high)
            previous_column = x // 2 + 1
        return [self._row(y, grid, bands, low, high, height) for y in range(height)]

    def _row(
        self,
        y: int,
        grid: BrailleGrid,
        bands: dict[int, tuple[float, float]],
        low: float,
        high: float,
        height: int,
    ) -> Strip:
        line = self.get_component_rich_style("chart--line")
        band = self.get_component_rich_style("chart--band", partial=True)
        axis = self.get_component_rich_style("chart--axis")
        one = self.get_component_rich_style("chart--one")
        step = (high - low) / height
        top = high - y * step
        holds_one = top - step <= 1.0 < top or (y == height - 1 and top - step > 1.0)
        labelled = holds_one or y in {0, height - 1}
        value = 1.0 if holds_one else top - step / 2
        label = f"{figures.factor(value):>5} {'┼' if holds_one else '┤'}" if labelled else "      │"
        segments = [Segment(label, one if holds_one else axis)]
        for x in range(grid.width):
            cell = grid.cell(x, y)
            inside = x in bands and bands[x][0] < top and bands[x][1] > top - step
            if cell == " " and holds_one:
                segments.append(Segment("┄", one + band if inside else one))
            else:
                segments.append(Segment(cell, line + band if inside else line))
        return Strip(segments).simplify()

    def _draw_empty(self, width: int, height: int) -> list[Strip]:
        style = self.get_component_rich_style("chart--empty")
        text = next((words for words in _EMPTY if len(words) <= width), "")
        blank = Strip.blank(width, self.rich_style)
        rows = [blank] * height
        if height:
            left = (width - len(text)) // 2
            words = Strip([Segment(" " * left, self.rich_style), Segment(text, style)])
            rows[(height - 1) // 2] = words.adjust_cell_length(width, self.rich_style)
        return rows
