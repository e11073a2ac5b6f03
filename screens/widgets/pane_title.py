"""Titles on the borders of panes: plain text, and painted only when they change."""

from typing import Self

from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget

FRAME = 8
"""Columns of a border that are not its title."""


class TitledPane(Vertical):
    """A pane that repaints only its borders when its title changes, not its contents.

    The title of a text's pane contains the cursor's place, so every key would paint the text twice: Textual's setters
    of titles refresh the whole pane, not only the border's row.
    """

    _border_rows: tuple[int, ...] = ()
    """The border rows to repaint while a title is set; otherwise empty."""

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Refreshes the widget; while a title is set, only the border's rows."""
        if self._border_rows and not layout:
            x, y = self.content_offset
            regions = tuple(Region(-x, row - y, self.outer_size.width, 1) for row in self._border_rows)
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)


def entitle(pane: Widget, title: str | None = None, subtitle: str | None = None) -> None:
    """Sets the given titles if they changed. Textual repaints the whole pane even for the same title."""
    for side, words in (("border_title", title), ("border_subtitle", subtitle)):
        if words is not None and getattr(pane, side) != (content := Content(words)).markup:
            if isinstance(pane, TitledPane):
                pane._border_rows = (0, pane.outer_size.height - 1)
            setattr(pane, side, content)
            if isinstance(pane, TitledPane):
                pane._border_rows = ()
