"""What screens with a table share: a filter above it, and the theme's colours for its cells.

Textual paints cells as Rich texts, whose colours stay as they were made.
"""

from collections.abc import Callable
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.theme import Theme
from textual.widget import Widget
from textual.widgets import Input


def cell_colour(app: App[object], name: str) -> str:
    """A theme variable in Rich's words, which lack Textual's prefix for the terminal's own colours; "" where it is not known."""
    return app.theme_variables.get(name, "").removeprefix("ansi_")


def redraw_with_theme(widget: Widget, draw: Callable[[], object]) -> None:
    """`draw` makes the cells anew whenever another theme is shown. widget: what is mounted, and owns the cells."""

    def changed(theme: Theme) -> None:
        widget.call_after_refresh(draw)

    widget.app.theme_changed_signal.subscribe(widget, changed)


class FilterInput(Input):
    """Down goes into the list, as in any search box: the action `to_table` of the screen."""

    BINDING_GROUP_TITLE = "Filter"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("down", "screen.to_table", "to the list", show=False)]
