"""Colours of the theme for cells of tables: Textual paints those as Rich texts, whose colours stay as they were made."""

from collections.abc import Callable

from textual.app import App
from textual.theme import Theme
from textual.widget import Widget


def cell_colour(app: App[object], name: str) -> str:
    """A theme variable in Rich's words, which lack Textual's prefix for the terminal's own colours; "" where it is not known."""
    return app.theme_variables.get(name, "").removeprefix("ansi_")


def redraw_with_theme(widget: Widget, draw: Callable[[], object]) -> None:
    """`draw` makes the cells anew whenever another theme is shown. widget: what is mounted, and owns the cells."""

    def changed(theme: Theme) -> None:
        widget.call_after_refresh(draw)

    widget.app.theme_changed_signal.subscribe(widget, changed)
