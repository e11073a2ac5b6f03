"""A text while it is being written: its end, coloured line by line, in a fixed layout."""

import builtins
import keyword
import re
from collections.abc import Iterator
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from arena.foreign_text import printable

_KINDS = ("keyword", "name", "builtin", "string", "number", "comment", "decorator")
_TAIL = 16_000
"""Characters looked at: more than any pane shows."""
_LINE = 1_000
"""Characters of a line that are looked at."""
_STRIPS = 1_000
_WORDS = re.compile(
    r"(?P<comment>#.*)"
    r"|(?P<string>[rbfuRBFU]{0,2}(?:\"\"\"|'''|\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?))"
    r"|(?P<decorator>^\s*@[\w.]+)"
    rf"|(?P<keyword>\b(?:{'|'.join(keyword.kwlist)})\b)"
    r"|(?P<number>\b\d[\w.]*)"
    rf"|(?P<builtin>(?<![\w.])(?:{'|'.join(name for name in dir(builtins) if name[0].islower())})\b)"
    r"|(?P<name>(?<=def )\w+|(?<=class )\w+)|\w+"
)


def _spans(line: str) -> Iterator[tuple[int, int, str]]:
    """A line's coloured words, by a glance: it is looked at for as long as it is new, and Pygments takes half a millisecond."""
    for match in _WORDS.finditer(line):
        if match.lastgroup is not None:
            yield match.start(), match.end(), match.lastgroup


class Writing(Widget):
    """Costs the visible lines alone, however long the text and however fast it comes."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"source--{kind}" for kind in _KINDS}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[str] = []
        self._length = -1
        self._styles: dict[str, Style] = {}
        self._strips: dict[tuple[str, int], Strip] = {}
        """Lines as they were drawn: most of a growing text only moves up."""

    def show(self, text: str) -> None:
        """All that was written so far."""
        if len(text) != self._length:
            self._length = len(text)
            self._lines = text[-_TAIL:].split("\n")
            self.refresh()

    def notify_style_update(self) -> None:
        self._styles = {}
        self._strips = {}
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        width, height = self.content_size
        at = max(0, len(self._lines) - height) + y
        if at >= len(self._lines):
            return Strip.blank(width, self._style(""))
        if at == len(self._lines) - 1:
            return self._drawn(self._lines[at], width, cursor=True)
        line = self._lines[at][:_LINE]
        key = (line, width)
        if key not in self._strips:
            if len(self._strips) > _STRIPS:
                self._strips.clear()
            self._strips[key] = self._drawn(line, width)
        return self._strips[key]

    def _drawn(self, text: str, width: int, cursor: bool = False) -> Strip:
        line, plain = printable(text[:_LINE])[:width], self._style("")
        segments, at = [], 0
        for start, end, kind in _spans(line):
            segments.append(Segment(line[at:start], plain))
            segments.append(Segment(line[start:end], self._style(kind)))
            at = end
        segments.append(Segment(line[at:], plain))
        if cursor:
            segments.append(Segment("▌", self._style("keyword")))
        return Strip(segments).adjust_cell_length(width, plain)

    def _style(self, kind: str) -> Style:
        """Of a kind of words; of what is none without one."""
        if kind not in self._styles:
            self._styles[kind] = self.get_component_rich_style(f"source--{kind}") if kind else self.rich_style
        return self._styles[kind]
