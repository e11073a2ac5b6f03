"""Widgets whose size a drawing depends on: each reports a new size after the layout pass that gave it one.

A screen's own Resize event is no replacement: it can come before that layout pass. A screen below a dialog gets none.
"""

from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.widget import Widget


class Remeasured(Message):
    """A widget has its new size. Where a drawing can change that size, its handler compares the width first."""


class Measured(Widget):
    """A subclass names this base last: Textual takes default styles from the first base alone."""

    def on_resize(self) -> None:
        self.post_message(Remeasured())


class MeasuredPane(Vertical, Measured):
    """The frame of a dialog, or a pane."""


class MeasuredPage(VerticalScroll, Measured):
    """The same, for contents that scroll."""
