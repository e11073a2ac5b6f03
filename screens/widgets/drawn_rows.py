"""A widget that draws all its rows at once and keeps them until something changed."""

from __future__ import annotations

from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget


class DrawnRows(Widget):
    """Base of the charts: `draw` gives the rows, `stale` asks for them anew."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: list[Strip] | None = None
        self._drawn_size = Size(0, 0)

    def draw(self) -> list[Strip]:
        """The rows at this size and in this theme."""
        raise NotImplementedError

    def stale(self) -> None:
        """What was drawn no longer holds."""
        self._rows = None
        self.refresh()

    def notify_style_update(self) -> None:
        self._rows = None
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        size = self.content_size
        if self._rows is None or size != self._drawn_size:  # a paint may come before the word of a new size
            self._rows, self._drawn_size = self.draw(), size
        return self._rows[y] if y < len(self._rows) else Strip.blank(size.width, self.rich_style)
