"""A unified diff between two sources, with its signs."""

import difflib
from collections.abc import Mapping
from typing import ClassVar

from rich.segment import Segment
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from arena.words.untrusted_text import masked

_KINDS = {"+": "added", "-": "removed", "@": "place"}


def diff_lines(old: Mapping[str, str], new: Mapping[str, str], old_name: str, new_name: str) -> list[tuple[str, str]]:
    """Returns a unified diff of texts by file: (kind, line without its line end); empty if all texts are equal.

    Files are named if there are several.
    """
    found = []
    several = len({**old, **new}) > 1
    for file in {**old, **new}:
        before, after = (texts.get(file, "").splitlines() for texts in (old, new))
        first, second = (f"{name} {file}" if several else name for name in (old_name, new_name))
        lines = list(difflib.unified_diff(before, after, first, second, lineterm="", n=4))
        found += [("place", line) for line in lines[:2]]
        found += [(_KINDS.get(line[:1], "same"), line) for line in lines[2:]]
    return found


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
        self._lines: list[tuple[str, str]] = []
        self._empty = "No difference."

    def show(self, old: Mapping[str, str], new: Mapping[str, str], old_name: str, new_name: str) -> None:
        """Compares texts by file, and draws."""
        self._lines = diff_lines(old, new, old_name, new_name)
        self._empty = f"{new_name} is the same as {old_name}."
        widest = max((len(line) for _, line in self._lines), default=0)
        self.virtual_size = Size(widest, len(self._lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        x, top = self.scroll_offset
        width = self.size.width
        row = top + y
        if row < len(self._lines):
            kind, text = self._lines[row]
        else:
            kind, text = ("empty", self._empty) if not self._lines and y == 0 else ("same", "")
        text = masked(text).expandtabs(4)
        style = self.get_component_rich_style(f"diff--{kind}")
        return Strip([Segment(text, style)]).crop(x, x + width).adjust_cell_length(width, style)
