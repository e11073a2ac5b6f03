"""Titles on the borders of panes: plain text, and painted only when they change."""

from textual.content import Content
from textual.widget import Widget


def entitle(pane: Widget, title: str | None = None, subtitle: str | None = None) -> None:
    """Sets what is given. Textual paints the whole pane for every title it is handed, the same one too."""
    for side, words in (("border_title", title), ("border_subtitle", subtitle)):
        if words is not None and getattr(pane, side) != (content := Content(words)).markup:
            setattr(pane, side, content)
