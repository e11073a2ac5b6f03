"""The end of a growing text, coloured line by line."""

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
from screens.widgets.highlight import Language, has_fence, line_languages

_KINDS = ("keyword", "name", "builtin", "string", "number", "comment", "decorator")
_TAIL = 16_000
"""Characters looked at: more than any pane shows."""
_LINE = 1_000
"""Characters of a line that are looked at."""
_STRIPS = 1_000
_CODE = ("import ", "from ", '"""', "#", "def ", "class ", "@")
"""How an answer begins that is nothing but a Python file."""
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
        self._languages: list[Language] = []
        """Of every line: an answer is prose with code in fences, or nothing but code."""
        self._strips: dict[tuple[str, int, bool], Strip] = {}
        """Lines as they were drawn: most of a growing text only moves up."""

    def show(self, text: str) -> None:
        """All that was written so far."""
        if len(text) != self._length:
            self._length = len(text)
            start = text.rfind("\n", 0, -_TAIL) + 1 if len(text) > _TAIL else 0
            # A long answer is in its code by then; a fence that is open in front of the tail is opened again for it.
            opened = "```python\n" if start and text.count("\n```", 0, start) % 2 else ""
            self._lines = (opened + text[start:]).split("\n")
            code = text.lstrip().startswith(_CODE) and not has_fence(text)
            self._languages = ["python"] * len(self._lines) if code else line_languages(self._lines)
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
        code = self._languages[at] not in ("prose", "plain")
        if at == len(self._lines) - 1:
            return self._drawn(self._lines[at], width, code, cursor=True)
        line = self._lines[at][:_LINE]
        key = (line, width, code)
        if key not in self._strips:
            if len(self._strips) > _STRIPS:
                self._strips.clear()
            self._strips[key] = self._drawn(line, width, code)
        return self._strips[key]

    def _drawn(self, text: str, width: int, code: bool, cursor: bool = False) -> Strip:
        line, plain = printable(text[:_LINE]).replace("\n", " ")[:width], self._style("")
        segments, at = [], 0
        for start, end, kind in _spans(line) if code else ():
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
