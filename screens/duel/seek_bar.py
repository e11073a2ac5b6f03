"""The bar of a replay: the position, and marks of events. A click seeks."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widget import Widget

from screens import figures

SeekMark = tuple[float, str, str]
"""The mark of an event: the seconds since the duel began, its sign, its theme colour."""


class SeekBar(Widget):
    """One line: the current time, the bar with its marks, the length, and a word such as the pace."""

    DEFAULT_CSS = "SeekBar { height: 1; margin: 0 1; text-wrap: nowrap; }"

    @dataclass
    class Sought(Message):
        """A place on the bar was clicked."""

        at: float
        """Seconds since the duel began."""

    _length = 0.0
    _marks: Sequence[SeekMark] = ()
    _shown: tuple[float, str] = (0.0, "")

    def open(self, length: float, marks: Sequence[SeekMark]) -> None:
        """Sets the length in seconds, and the marks. Of several marks on one cell, only the last is shown."""
        self._length, self._marks = length, marks
        self.refresh()

    def show(self, at: float, words: str) -> None:
        """Shows the current time in seconds, and the words behind the bar."""
        if (at, words) != self._shown:
            self._shown = (at, words)
            self.refresh()

    @property
    def _left(self) -> str:
        return f"{figures.clock(self._shown[0]):>5} "

    def _cells(self) -> int:
        """Returns the width of the bar itself."""
        return max(4, self.size.width - len(self._left) - len(self._right))

    @property
    def _right(self) -> str:
        return f" {figures.clock(self._length)}   {self._shown[1]:<10}"

    def _cell(self, at: float) -> int:
        return min(self._cells() - 1, int(at / self._length * self._cells())) if self._length else 0

    def render(self) -> Content:
        here, marks = self._cell(self._shown[0]), {self._cell(at): (sign, style) for at, sign, style in self._marks}
        bar = [marks.get(cell, ("━", "$accent" if cell < here else "$rule")) for cell in range(self._cells())]
        bar[here] = ("●", "$accent bold")
        return Content.assemble((self._left, "$muted"), *bar, (self._right, "$muted"))

    def on_click(self, event: Click) -> None:
        cell = event.x - len(self._left)
        if 0 <= cell < self._cells():
            self.post_message(self.Sought(cell / self._cells() * self._length))
