"""A widget that draws all its rows at once and keeps them until something changed."""

from __future__ import annotations

from textual.strip import Strip
from textual.widget import Widget


class DrawnRows(Widget):
    """Base of the charts: `draw` gives the rows, `stale` asks for them anew."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: list[Strip] | None = None

    def draw(self) -> list[Strip]:
        """The rows at this size and in this theme."""
        raise NotImplementedError

    def stale(self) -> None:
        """What was drawn no longer holds."""
        self._rows = None
        self.refresh()

    def on_resize(self) -> None:
        self._rows = None

    def notify_style_update(self) -> None:
        self._rows = None
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        if self._rows is None:
            self._rows = self.draw()
        return self._rows[y] if y < len(self._rows) else Strip.blank(self.content_size.width, self.rich_style)
