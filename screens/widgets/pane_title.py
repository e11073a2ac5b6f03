"""Titles on the borders of panes: plain text, and painted only when they change."""

from typing import Self

from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget

FRAME = 8
"""Columns of a border that are not its title."""


class TitledPane(Vertical):
    """A pane whose borders alone are painted when its title changes, not all that is inside them.

    A pane of text names the cursor's place: with every key the text was painted twice. Upstream, the setters of titles could
    ask for a refresh of the border's row.
    """

    _border_rows: tuple[int, ...] = ()
    """Rows of the pane that a new title is on, while it is set."""

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """As a widget's own; while a title is set, of the border's row."""
        if self._border_rows and not layout:
            x, y = self.content_offset
            regions = tuple(Region(-x, row - y, self.outer_size.width, 1) for row in self._border_rows)
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)


def entitle(pane: Widget, title: str | None = None, subtitle: str | None = None) -> None:
    """Sets what is given. Textual paints the whole pane for every title it is handed, the same one too."""
    for side, words in (("border_title", title), ("border_subtitle", subtitle)):
        if words is not None and getattr(pane, side) != (content := Content(words)).markup:
            if isinstance(pane, TitledPane):
                pane._border_rows = (0, pane.outer_size.height - 1)
            setattr(pane, side, content)
            if isinstance(pane, TitledPane):
                pane._border_rows = ()
