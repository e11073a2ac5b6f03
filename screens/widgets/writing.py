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


class Writing(Widget):
    """Costs the visible lines alone, however long the text and however fast it comes."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"source--{kind}" for kind in _KINDS}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[str] = []
        self._length = -1
        self._styles: dict[str, Style] = {}

    def show(self, text: str) -> None:
        """All that was written so far."""
        if len(text) != self._length:
            self._length = len(text)
            self._lines = [printable(line).expandtabs(4) for line in text[-_TAIL:].split("\n")]
            self.refresh()

    def notify_style_update(self) -> None:
        self._styles = {}
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        width, height = self.content_size
        first = max(0, len(self._lines) - height)
        if first + y >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        line = self._lines[first + y][:width]
        segments, at = [], 0
        for start, end, kind in spans_of(line, "python"):
            segments.append(Segment(line[at:start], self.rich_style))
            segments.append(Segment(line[start:end], self._style(kind)))
            at = end
        segments.append(Segment(line[at:], self.rich_style))
        if first + y == len(self._lines) - 1:
            segments.append(Segment("▌", self._style("keyword")))
        return Strip(segments).adjust_cell_length(width, self.rich_style)

    def _style(self, kind: str) -> Style:
        if kind not in self._styles:
            self._styles[kind] = self.get_component_rich_style(f"source--{kind}")
        return self._styles[kind]
