"""The end of a growing text, coloured line by line."""

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from arena.words.untrusted_text import printable
from screens.widgets.highlight import Language, has_fence, line_languages, spans_of

_KINDS = ("keyword", "name", "builtin", "string", "number", "comment", "decorator")
_TAIL = 16_000
"""Characters read from the end of the text: more than any pane shows."""
_LINE = 1_000
"""Characters of a line that can be drawn."""
_STRIPS = 1_000
_CODE = ("import ", "from ", '"""', "#", "def ", "class ", "@")
"""How an answer begins if it is only a Python file."""


class Writing(Widget):
    """Draws only the visible lines, so its cost does not depend on the length or the speed of the text."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"source--{kind}" for kind in _KINDS}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[str] = []
        self._length = -1
        self._styles: dict[str, Style] = {}
        self._languages: list[Language] = []
        """The language of every line: an answer is prose with code in fences, or only code."""
        self._strips: dict[tuple[str, int, Language], Strip] = {}
        """Cache of drawn lines: most lines of a growing text only move up."""

    def show(self, text: str) -> None:
        """Shows the end of `text`, which is all that was written so far."""
        if len(text) != self._length:
            self._length = len(text)
            start = text.rfind("\n", 0, -_TAIL) + 1 if len(text) > _TAIL else 0
            # A fence that is open before the tail is opened again in it, as Python: a long answer has reached its code.
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
        language = self._languages[at]
        if at == len(self._lines) - 1:
            return self._drawn(self._lines[at], width, language, cursor=True)
        line = self._lines[at][:_LINE]
        key = (line, width, language)
        if key not in self._strips:
            if len(self._strips) > _STRIPS:
                self._strips.clear()
            self._strips[key] = self._drawn(line, width, language)
        return self._strips[key]

    def _drawn(self, text: str, width: int, language: Language, cursor: bool = False) -> Strip:
        line, plain = printable(text[:_LINE]).replace("\n", " ")[:width], self._style("")
        segments, at = [], 0
        for start, end, kind in spans_of(line, language):
            segments.append(Segment(line[at:start], plain))
            segments.append(Segment(line[start:end], self._style(kind)))
            at = end
        segments.append(Segment(line[at:], plain))
        if cursor:
            segments.append(Segment("▌", self._style("keyword")))
        return Strip(segments).adjust_cell_length(width, plain)

    def _style(self, kind: str) -> Style:
        """Returns the style of a kind of words; an empty kind has the style of plain text."""
        if kind not in self._styles:
            self._styles[kind] = self.get_component_rich_style(f"source--{kind}") if kind else self.rich_style
        return self._styles[kind]
