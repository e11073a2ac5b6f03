"""A unified diff between two sources, with its signs."""

import difflib
from typing import ClassVar

from rich.segment import Segment
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from arena.foreign_text import masked

_KINDS = {"+": "added", "-": "removed", "@": "place"}


def diff_lines(old: str, new: str, old_name: str, new_name: str) -> list[str]:
    """Unified diff without line ends; empty when the texts are equal."""
    return list(difflib.unified_diff(old.splitlines(), new.splitlines(), old_name, new_name, lineterm="", n=4))


class DiffView(ScrollView, can_focus=True):
    """Scrolls in both directions."""

    DEFAULT_CSS = """
    DiffView {
        & .diff--added { color: $success; }
        & .diff--removed { color: $error; }
        & .diff--place { color: $accent; }
        & .diff--same { color: $foreground; }
        & .diff--empty { color: $muted; }
    }
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"diff--added", "diff--removed", "diff--place", "diff--same", "diff--empty"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[str] = []
        self._empty = "No difference."

    def show(self, old: str, new: str, old_name: str, new_name: str) -> None:
        """Compares and draws."""
        self._lines = diff_lines(old, new, old_name, new_name)
        self._empty = f"{new_name} is the same as {old_name}."
        widest = max((len(line) for line in self._lines), default=0)
        self.virtual_size = Size(widest, len(self._lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        x, top = self.scroll_offset
        width = self.size.width
        row = top + y
        if row >= len(self._lines):
            text, kind = (self._empty, "empty") if not self._lines and y == 0 else ("", "same")
        else:
            text = masked(self._lines[row]).expandtabs(4)
            kind = _KINDS.get(text[:1], "same")
            if row < 2:
                kind = "place"
        style = self.get_component_rich_style(f"diff--{kind}")
        return Strip([Segment(text, style)]).crop(x, x + width).adjust_cell_length(width, style)
