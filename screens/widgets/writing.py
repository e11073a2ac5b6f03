"""What is being written, as it comes: the end of the text, coloured line by line, without ever changing the layout."""

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from arena.foreign_text import printable
from screens.widgets.highlight import spans_of

_KINDS = ("keyword", "name", "builtin", "string", "number", "comment", "decorator")
_TAIL = 16_000
"""Characters looked at: more than any pane shows."""
_STRIPS = 1_000


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
            self._lines = [printable(line).expandtabs(4) for line in text[-_TAIL:].split("\n")]
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
        line = self._lines[at][:width]
        key = (line, width)
        if key not in self._strips:
            if len(self._strips) > _STRIPS:
                self._strips.clear()
            self._strips[key] = self._drawn(line, width)
        return self._strips[key]

    def _drawn(self, text: str, width: int, cursor: bool = False) -> Strip:
        line, plain = text[:width], self._style("")
        segments, at = [], 0
        for start, end, kind in spans_of(line, "python"):
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
