"""Two kernels side by side: equal lines on one row, removed lines on the left, added lines on the right."""

import difflib
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from arena.words.untrusted_text import printable

_NUMBER = 5
"""Cells of a line number and the space behind it."""


class DiffRow(NamedTuple):
    """One row. A side without a line, and a file's name above its lines, have number 0."""

    left: int
    old: str
    right: int
    new: str

    @property
    def same(self) -> bool:
        """The line, or the file, is in both."""
        return bool(self.left) == bool(self.right) and self.old == self.new


def rows_of(old: Mapping[str, str], new: Mapping[str, str]) -> list[DiffRow]:
    """Returns the rows of two kernels' files, in the order of the first and then the second.

    Where there are several files, each file's name is above its lines, and a file that is the same in both has no lines.
    """
    names = list(dict.fromkeys((*old, *new)))
    if len(names) == 1:
        return _file_rows(old[names[0]], new[names[0]])
    rows: list[DiffRow] = []
    for name in names:
        if old.get(name) == new.get(name):
            rows.append(DiffRow(0, f"{name} is the same", 0, f"{name} is the same"))
            continue
        rows.append(DiffRow(0, name if name in old else "", 0, name if name in new else ""))
        rows += _file_rows(old.get(name, ""), new.get(name, ""))
    return rows


def _file_rows(old: str, new: str) -> list[DiffRow]:
    """All lines of both texts, with changed lines opposite each other."""
    before, after = old.splitlines(), new.splitlines()
    rows: list[DiffRow] = []
    for _, first, last, start, end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        for at in range(max(last - first, end - start)):
            left, right = first + at, start + at
            rows.append(
                DiffRow(
                    *((left + 1, before[left]) if left < last else (0, "")),
                    *((right + 1, after[right]) if right < end else (0, "")),
                )
            )
    return rows


class SideBySide(ScrollView, can_focus=True):
    """Scrolls to the first difference; cuts lines that are longer than half the width."""

    DEFAULT_CSS = """
    SideBySide {
        & .sides--removed { color: $error; }
        & .sides--added { color: $success; }
        & .sides--same { color: $foreground; }
        & .sides--muted { color: $muted; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"sides--{name}" for name in ("removed", "added", "same", "muted")}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: list[DiffRow] = []
        self._names = ("", "")

    def show(self, old: Mapping[str, str], new: Mapping[str, str], old_name: str, new_name: str) -> None:
        """Compares two kernels, as texts by file name, and draws them."""
        self._rows, self._names = rows_of(old, new), (old_name, new_name)
        self.virtual_size = Size(0, len(self._rows) + 1)
        first = next((at for at, row in enumerate(self._rows) if not row.same), 0)
        self.scroll_to(y=max(0, first - 2), animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        at = self.scroll_offset.y + y
        half = (self.size.width - 1) // 2
        if y == 0:
            same = all(row.same for row in self._rows)
            words = f"{self._names[1]} is the same" if same else self._names[1]
            return self._line(self._text(f"  {self._names[0]}", half), self._text(f"  {words}", half))
        if at > len(self._rows):
            return Strip.blank(self.size.width, self.rich_style)
        row = self._rows[at - 1]
        left = self._half(row.left, row.old, "-", "removed", half, row.same)
        right = self._half(row.right, row.new, "+", "added", half, row.same)
        return self._line(left, right)

    def _half(self, number: int, line: str, sign: str, style: str, width: int, same: bool) -> list[Segment]:
        """Returns one side of a row; a changed line has a sign in addition to its colour."""
        if not number:
            return self._text(printable(line), width)
        kind = "same" if same else style
        text = printable(line.expandtabs(4))[: max(0, width - _NUMBER - 1)].ljust(max(0, width - _NUMBER - 1))
        gutter = Segment(f"{number:>{_NUMBER - 1}}", self._style("muted"))
        return [gutter, Segment(f" {' ' if same else sign}", self._style(kind)), Segment(text, self._style(kind))]

    def _text(self, words: str, width: int) -> list[Segment]:
        return [Segment(words[:width].ljust(width), self._style("muted"))]

    def _line(self, left: list[Segment], right: list[Segment]) -> Strip:
        strip = Strip([*left, Segment("│", self._style("muted")), *right])
        return strip.adjust_cell_length(self.size.width, self.rich_style)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"sides--{name}")
