"""A widget that draws all its rows at once and keeps them until something changed."""

from __future__ import annotations

from textual.containers import Vertical, VerticalScroll
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget


class Remeasured(Message):
    """A widget has its new size. If a drawing can change that size, its handler must compare the width first."""


class Measured(Widget):
    """Posts `Remeasured`. A subclass names this base last: Textual takes default styles from the first base only."""

    def on_resize(self) -> None:
        self.post_message(Remeasured())


class MeasuredPane(Vertical, Measured):
    """The frame of a dialog, or a pane."""


class MeasuredPage(VerticalScroll, Measured):
    """A frame or a pane whose contents scroll."""


class DrawnRows(Widget):
    """Base of the charts: `draw` returns the rows, `stale` causes a new drawing."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: list[Strip] | None = None
        self._drawn_size = Size(0, 0)

    def draw(self) -> list[Strip]:
        """Returns the rows for the current size and theme."""
        raise NotImplementedError

    def stale(self) -> None:
        """Drops the drawn rows and refreshes the widget."""
        self._rows = None
        self.refresh()

    def notify_style_update(self) -> None:
        self._rows = None
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        size = self.content_size
        if self._rows is None or size != self._drawn_size:  # a paint may come before the Resize event
            self._rows, self._drawn_size = self.draw(), size
        return self._rows[y] if y < len(self._rows) else Strip.blank(size.width, self.rich_style)
