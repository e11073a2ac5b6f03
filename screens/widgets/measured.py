"""Widgets for drawings that depend on a size: each reports a new size after the layout pass that set it.

A screen's own Resize event cannot replace this: it can come before that layout pass. A screen below a dialog gets none.
"""

from textual.containers import Vertical, VerticalScroll
from textual.message import Message
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
