"""What screens with a table share: a filter above it, and the theme's colours for its cells.

Textual paints cells as Rich texts, whose colours do not follow a change of the theme.
"""

from collections.abc import Callable
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.theme import Theme
from textual.widget import Widget
from textual.widgets import Input


def cell_colour(app: App[object], name: str) -> str:
    """Returns a theme variable as a Rich colour, without Textual's prefix "ansi_"; "" if the variable is unknown."""
    return app.theme_variables.get(name, "").removeprefix("ansi_")


def redraw_with_theme(widget: Widget, draw: Callable[[], object]) -> None:
    """Calls `draw` after every change of the theme. widget: the mounted widget that owns the cells."""

    def changed(theme: Theme) -> None:
        widget.call_after_refresh(draw)

    widget.app.theme_changed_signal.subscribe(widget, changed)


class FilterInput(Input):
    """A filter field. The down key moves to the list, by the screen's action `to_table`."""

    BINDING_GROUP_TITLE = "Filter"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("down", "screen.to_table", "to the list", show=False)]
